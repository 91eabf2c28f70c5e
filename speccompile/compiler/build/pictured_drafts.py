"""Prove drafts behind pictures: compare each draft with the drafter's own reference, over transformers' features.

Drafts of a blind drafter are often the same. So the proof compares drafts behind more prompts until some of them
would be others without the rows of the pictures, and some without their positions, if the drafter reads them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from speccompile.bundle.media import AXES, MEDIA_BEHIND, MEDIA_NEXT
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.models.image_inputs import image_features, pixel_inputs, token_inputs
from speccompile.compiler.prove.drafts import (
    Case,
    DrafterInputs,
    PicturedText,
    ReferenceLogits,
    check_children,
    check_expanded,
    lineages,
    token_paths,
)
from speccompile.compiler.prove.schedule import ScheduledWindow
from speccompile.compiler.step.taps import Taps
from speccompile.drafters import module_of
from speccompile.drafters.context import DraftInputs
from speccompile.errors import ProofError
from speccompile.runtime import Bundle
from speccompile.runtime.batch import Batch
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.images.family import Family
from speccompile.tree import Tree

ROUNDS, PROMPTS = 3, 8
"""Windows of drafts that are checked behind a prompt: the first one is made from the prompt's rows alone. Most prompts,
which differ in their text."""
ROWS, POSITIONS = "rows", "positions"
"""Parts of pictures that a drafter reads."""


@dataclass(frozen=True)
class PicturedPrompt:
    """A prompt with pictures, and the model that reads it whole. ids: with the placeholders of all rows."""

    whole: nn.Module
    family: Family
    ids: list[int]
    shown: Sequence[NDArray[np.uint8]]

    def given(self, tokens: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return transformers' inputs for the prompt and the tokens after it."""
        ids = torch.tensor([[*self.ids, *tokens]])
        return token_inputs(self.whole, ids) | pixel_inputs(self.family, self.shown)

    @torch.no_grad()
    def pictures(self, behind: int) -> PicturedText:
        """Return the pictures as transformers has them. behind: number of tokens after the prompt with positions."""
        is_row = np.array(self.ids) == self.family.images.token_id
        own = image_features(self.whole, self.family, self.shown)[:, : self.whole.config.text_config.hidden_size]
        rows = np.zeros((len(self.ids), own.shape[1]), np.float32)
        rows[is_row] = own.float().numpy()
        if not self.family.images.axes:
            return PicturedText(rows, is_row, None, self._fill)
        given = self.given([0] * behind)
        kinds, grid = given["mm_token_type_ids"], given["image_grid_thw"]
        places, _ = self.whole.model.get_rope_index(given["input_ids"], kinds, grid)
        return PicturedText(rows, is_row, places[:, 0].numpy(), self._fill)

    def _fill(self, text: Sequence[int], caches: Any) -> None:
        self.whole(**self.given(text[len(self.ids) :]), cache=caches, use_cache=True)

    @torch.no_grad()
    def logits(self, tokens: Sequence[int] = ()) -> NDArray[np.float32]:
        """Return transformers' logits float32 [n, V] at the prompt and the tokens after it."""
        logits = self.whole(**self.given(tokens), use_cache=False).logits
        return np.asarray(logits[0].float().numpy())

    @torch.no_grad()
    def features(self, tokens: Sequence[int], taps: Sequence[str]) -> NDArray[np.float32]:
        """Return transformers' hidden states float32 [n, F] at the prompt and the tokens after it. A layer's output is
        what the next layer reads, with the additions of pictures."""
        decoder = self.whole.get_decoder()
        last = int(decoder.config.num_hidden_layers) - 1
        found = Taps(decoder, [_as_input(name, last) for name in taps])
        with found.open():
            self.whole(**self.given(tokens), use_cache=False)
        return found.features()[0].numpy()


def _as_input(name: str, last: int) -> str:
    """Return a tap as the next layer's input where there is a next layer."""
    place, _, side = name.rpartition(".")
    number = place.removeprefix("layers.")
    is_inner = side == "output" and number.isdecimal() and int(number) < last
    return f"layers.{int(number) + 1}.input" if is_inner else name


@dataclass(frozen=True)
class PicturedDrafts:
    """Drafts that were compared. tokens: their number; unseen: parts of pictures that the drafter reads, and on which
    none of them depended."""

    tokens: int
    unseen: tuple[str, ...]


def check_pictured_drafts(
    bundle: Bundle, prompt: PicturedPrompt, draft: DraftInputs, new_tokens: int
) -> PicturedDrafts:
    """Check the drafts of the first rounds behind a prompt, and behind others with its pictures until drafts depend on
    all that the drafter reads of them. Raise ProofError."""
    unseen, compared = _reads(bundle), 0
    for number in range(PROMPTS):
        own = prompt if not number else _other_text(prompt, number, bundle.manifest.vocabulary_size)
        for case, check in _cases(bundle, own, draft, new_tokens):
            compared += check(case)
            unseen = tuple(name for name in unseen if not _differs(check, _blind(case, name)))
        if not unseen:
            break
    return PicturedDrafts(compared, unseen)


def _reads(bundle: Bundle) -> tuple[str, ...]:
    """Return what the drafter reads of pictures."""
    taken = {tensor.name for graph in bundle.manifest.graphs for tensor in graph.inputs}
    return tuple(name for name, read in ((ROWS, MEDIA_NEXT), (POSITIONS, MEDIA_BEHIND)) if read in taken)


def _other_text(prompt: PicturedPrompt, seed: int, vocabulary: int) -> PicturedPrompt:
    """Return a prompt with the same pictures, and a token of text around each: the less text, the more rows matter."""
    random, token_id, ids = np.random.default_rng(seed), prompt.family.images.token_id, list[int]()
    for is_row, part in groupby(prompt.ids, key=lambda token: token == token_id):
        token = int(random.integers(0, vocabulary - 1))
        ids += part if is_row else [token + (token >= token_id)]
    return replace(prompt, ids=ids)


def _blind(case: Case, name: str) -> Case:
    """Return a case whose reference lacks what a drafter reads of pictures."""
    pictures = case.fed.pictures
    assert pictures is not None, "the prompt has pictures"
    if name == ROWS:
        blind = replace(pictures, is_row=np.zeros_like(pictures.is_row))
    else:
        assert pictures.positions is not None, "the drafter reads positions"
        blind = replace(pictures, positions=np.tile(np.arange(pictures.positions.shape[1]), (AXES, 1)))
    return replace(case, fed=replace(case.fed, pictures=blind))


def _differs(check: Callable[[Case], int], case: Case) -> bool:
    """Return whether the drafts are others than those of a reference."""
    try:
        check(case)
    except ProofError:
        return True
    return False


def _cases(
    bundle: Bundle, prompt: PicturedPrompt, draft: DraftInputs, new_tokens: int
) -> Iterator[tuple[Case, Callable[[Case], int]]]:
    """Yield the windows of the first rounds behind a prompt, each with its check, which returns the number of compared
    tokens."""
    teachers = module_of(draft.drafter.kind, "reference").teachers(drafter_context(draft))
    pictures = prompt.pictures(new_tokens + draft.drafter.tokens)

    def check(case: Case) -> int:
        return _check(case, teachers, draft, bundle.manifest.max_length)

    for number, (text, outputs) in enumerate(_windows(bundle, prompt, new_tokens)):
        if number == ROUNDS:
            break
        features = prompt.features(text[len(prompt.ids) : -1], draft.drafter.head.taps) if draft.drafter.head else None
        fed = DrafterInputs(text, features, text[1:], pictures=pictures)
        where = f"pictures, window {number} behind the prompt"
        window = ScheduledWindow({}, {}, [len(text) - 1], [0], drafted=False)
        yield Case(where, 0, fed, window, outputs), check


def _windows(
    bundle: Bundle, prompt: PicturedPrompt, new_tokens: int
) -> Iterator[tuple[list[int], dict[str, NDArray[np.int64]]]]:
    """Yield the text so far, and the window of drafts that follows it, for every round that follows, up to a
    placeholder that the model itself writes: transformers would want another picture for it."""
    options = GenerationOptions(images=list(prompt.shown), max_new_tokens=new_tokens, adaptive=False, ignore_eos=True)
    batch, size = Batch(bundle, [prompt.ids], options), (bundle.manifest.batch_size, bundle.manifest.tokens + 1)
    named = {"next_window": "window", "next_parents": "parents"}
    made = {tensor.name for graph in bundle.manifest.graphs for tensor in graph.outputs}
    for _ in batch.run():
        row = batch.rows[0]
        if prompt.family.images.token_id in row.all_token_ids[len(prompt.ids) :]:
            return
        if row.is_active and len(row) + bundle.manifest.depth < bundle.manifest.max_length:
            found = {name: bundle.engine.host_view(own, size).copy() for name, own in named.items() if name in made}
            total = bundle.engine.host_view("n_total", size[:1]).copy()
            yield row.all_token_ids, found | {"next_total": total}


def _check(case: Case, teachers: Sequence[ReferenceLogits], draft: DraftInputs, max_length: int) -> int:
    """Check the window of one round. Return the number of compared tokens."""
    plan = draft.drafter.tree
    if plan.parents is None:
        assert plan.top_k is not None, "the plan refuses other trees of drafters that read pictures"
        return check_expanded(case, token_paths(case), teachers[0], plan.depth, plan.top_k)
    tree = Tree(plan.parents)
    found = (logits for each in teachers for logits in lineages(each, case.fed, case.tokens, tree, max_length))
    return sum(check_children(case, node, row, case.tokens, tree) for logits in found for node, row in logits)
