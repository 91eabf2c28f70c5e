"""A method's drafter as torch runs it, round after round, against its reference over the whole text."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PretrainedConfig

from speccompile.compiler.build import build
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.step.draft import Accepted
from speccompile.drafters import module_of
from speccompile.drafters.context import DrafterContext
from speccompile.recipe import Plan, load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import save

WINDOWS = (7, 4, 5, 1, 4, 16, 3)
"""Widths of the rounds' windows: a prefill's, and those of rounds with drafts."""
PROMPTS = ([*range(3, 60)], [5, 9, 200, 17] * 6, [11])
"""Longer than several chunks, one that repeats, and one token."""


def plan_of(folder: Path, write: Callable[[Path, PretrainedConfig], object], drafter: str, more: str = "") -> Plan:
    """Return a tiny target, the drafter that `write` puts beside it, and a recipe with these keys of its section."""
    model = zoo.model("llama")
    save(model, folder / "target", tokenizer=False)
    write(folder / "head", model.config)
    cache = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}"
    recipe = f"name: tiny\ntarget: {{model: target}}\ndrafter: {{model: head, {drafter}}}\n{cache}\n{more}\n"
    (folder / "recipe.yaml").write_text(recipe)
    return make_plan(load_recipe(folder))


def check_generation(plan: Plan, folder: Path) -> None:
    """Build with the proof, and generate what the target generates alone, two prompts at once as well."""
    build(plan, folder / "bundle")
    bundle = Bundle.open(folder / "bundle", threads=1)
    for prompt in PROMPTS:
        drafted = bundle.generate(prompt, max_new_tokens=20, adaptive=False)
        assert drafted.token_ids == bundle.generate(prompt, max_new_tokens=20, autoregressive=True).token_ids


@torch.no_grad()
def check_rounds(plan: Plan, seed: int = 0) -> None:
    """Check chains of drafts: every draft is the best token of the reference after those before it."""
    compared = 0
    for teacher, fed, drafted in each_round(plan, seed):
        compared += _compare(teacher, fed, drafted[0][1:])
    assert compared > len(WINDOWS)


@torch.no_grad()
def each_round(
    plan: Plan, seed: int = 0, windows: Sequence[int] = WINDOWS
) -> Iterator[tuple[ReferenceLogits, DrafterInputs, tuple[list[int], list[int]]]]:
    """Yield the reference, its inputs, and the drafted window and parents (empty for constant trees), over random texts
    and features, rows of a batch with as many tokens each as they like, among them none."""
    context, random = drafter_context(open_round(plan).draft), np.random.default_rng(seed)
    reference, drafter = (
        module_of(plan.drafter.kind, "reference"),
        module_of(plan.drafter.kind, "drafter").make(context),
    )
    (teacher,) = reference.teachers(context)
    rows = [_Row(context, random) for _ in range(plan.batch_size)]
    states = [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]
    for window in windows:
        given = [row.step(int(random.integers(0, window + 1)), window) for row in rows]
        accepted = Accepted(*map(torch.stack, zip(*given, strict=True)))
        if not drafter.taps:
            accepted = accepted._replace(features=None)
        drafted = drafter(accepted._replace(catch_up=torch.arange(window + 1)), states)
        states = drafted.states
        parents = [[]] * len(rows) if drafted.parents is None else drafted.parents.tolist()
        found = zip(rows, drafted.window.tolist(), drafted.n_total.tolist(), parents, strict=True)
        for row, tokens, total, its in found:
            assert total == (1 + drafter.tokens if row.is_fed else 1)
            if row.is_fed:
                assert tokens[0] == row.text[-1]
                yield teacher, row.fed(), (tokens, its)


def _compare(teacher: ReferenceLogits, fed: DrafterInputs, drafts: list[int]) -> int:
    logits = teacher(fed, drafts[:-1])
    assert logits.shape[0] == len(drafts)
    assert drafts == logits.argmax(-1).tolist()
    return len(drafts)


class _Row:
    """A text that grows: all but its last token are committed, with their features."""

    def __init__(self, context: DrafterContext, random: np.random.Generator) -> None:
        head = context.drafter.head
        self.random, self.vocabulary = random, context.vocabulary_size
        self.width = len(head.taps) * head.hidden_size if head else 1
        self.text = [int(random.integers(self.vocabulary))]
        self.features = np.zeros((0, self.width), np.float32)
        self.is_fed = False

    def step(self, n_path: int, window: int) -> tuple[torch.Tensor, ...]:
        """Commit n_path tokens: path [W + 1], n_path, length, an unused catch-up, features [W, F]."""
        length, self.is_fed = len(self.text) - 1, n_path > 0
        path = self.random.integers(self.vocabulary, size=window + 1)
        path[0] = self.text[-1]
        features = self.random.standard_normal((window, self.width)).astype(np.float32)
        self.text += path[1 : n_path + 1].tolist()
        self.features = np.concatenate([self.features, features[:n_path]])
        given = (path, np.int64(n_path), np.int64(length), np.int64(0), features)
        return tuple(map(torch.as_tensor, given))

    def fed(self) -> DrafterInputs:
        return DrafterInputs(self.text, self.features, self.text[1:])
