"""Every drafting method: its traced graph against transformers eager, window after window, in ragged pairs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from speccompile.compiler.lower.signatures import draft_graph
from speccompile.compiler.prove.drafts import ReferenceLogits, check_dynamic, check_tree, teacher
from speccompile.compiler.prove.graphs import EAGER, check_exact, module_drafts
from speccompile.compiler.step.draft import Accepted, Drafter
from speccompile.compiler.step.draft.dynamic import DynamicDrafter
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.draft.votes import SuffixPolicy
from speccompile.drafters.models.drafter import SeveralDrafters
from speccompile.drafters.prompt_lookup.drafter import PromptLookup
from speccompile.tree import chain, from_branching, from_paths
from tests.compile.drafter_graphs import BATCH, MAX_LENGTH, ROWS, Driven, decoder, driven, model
from tests.compile.suffix_drafters import suffix_chain, suffix_tree

pytestmark = pytest.mark.builds(3)

TREE = from_paths([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [1, 0, 0]])
CHAIN = chain(3)
PAIR = from_branching([2, 1])
DEPTH, TOP_K, NODES = 3, 3, 20
"""All but one of the nodes that are considered: the deepest would otherwise never be among the best."""
FALLBACK = 0.08
VOTES = SuffixPolicy(match=5, factor=1.0, offset=2.0, threshold=0.1)

MAKERS: dict[str, Callable[[], Drafter]] = {
    "chain": lambda: FixedDrafter(DecoderReader(decoder("llama")), CHAIN),
    "chain, BiLD": lambda: FixedDrafter(DecoderReader(decoder("qwen2")), CHAIN, fallback=FALLBACK),
    "chain, sampled": lambda: FixedDrafter(DecoderReader(decoder("mistral")), CHAIN, sample=True),
    "tree": lambda: FixedDrafter(DecoderReader(decoder("mistral")), TREE),
    "tree, sampled": lambda: FixedDrafter(DecoderReader(decoder("llama")), TREE, sample=True),
    "small tree, sampled": lambda: FixedDrafter(DecoderReader(decoder("llama")), PAIR, sample=True),
    "dynamic": lambda: DynamicDrafter(DecoderReader(decoder("mistral")), DEPTH, TOP_K, NODES),
    "small and dynamic": lambda: DynamicDrafter(DecoderReader(decoder("mistral")), 2, TOP_K, 11),
    "several": lambda: SeveralDrafters([decoder("llama"), decoder("gpt2")], PAIR),
    "several chains": lambda: SeveralDrafters([decoder("llama"), decoder("llama", 1)], chain(2)),
    "lookup": lambda: PromptLookup(TREE, 3, BATCH, ROWS),
    "suffix": lambda: suffix_chain(4, VOTES, BATCH),
    "suffix, looking again": lambda: suffix_chain(4, VOTES, BATCH, lane=64, again=True),
    "suffix, remembering": lambda: suffix_chain(4, VOTES, BATCH, lane=64),
    "suffix, tree": lambda: suffix_tree(9, 4, replace(VOTES, top_k=3), BATCH, lane=64),
}
WITHOUT_WEIGHTS = tuple(name for name in MAKERS if name.startswith(("lookup", "suffix")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Driven]:
    """Return the graph of a drafter in `MAKERS`, driven over a script of windows."""
    return cache(lambda name: driven(MAKERS[name](), tmp_path_factory.mktemp("drafter")))


def teach(name: str, seed: int = 0) -> ReferenceLogits:
    return teacher(model(name, seed))


CHECKS: dict[str, Callable[..., dict[str, Any]]] = {
    "chain": lambda given: check_tree(given, [teach("llama")], CHAIN, MAX_LENGTH),
    "chain, BiLD": lambda given: check_tree(given, [teach("qwen2")], CHAIN, MAX_LENGTH, FALLBACK),
    "chain, sampled": lambda given: check_tree(given, [teach("mistral")], CHAIN, MAX_LENGTH),
    "tree": lambda given: check_tree(given, [teach("mistral")], TREE, MAX_LENGTH),
    "tree, sampled": lambda given: check_tree(given, [teach("llama")], TREE, MAX_LENGTH),
    "small tree, sampled": lambda given: check_tree(given, [teach("llama")], PAIR, MAX_LENGTH),
    "dynamic": lambda given: check_dynamic(given, teach("mistral"), DEPTH, TOP_K, MAX_LENGTH),
    "small and dynamic": lambda given: check_dynamic(given, teach("mistral"), 2, TOP_K, MAX_LENGTH),
    "several": lambda given: check_tree(given, [teach("llama"), teach("gpt2")], PAIR, MAX_LENGTH),
    "several chains": lambda given: check_tree(given, [teach("llama"), teach("llama", 1)], chain(2), MAX_LENGTH),
}
# Every third of the windows' rows is idle or at the end; candidates count where drafts are sampled.
LEAST = {"chain": 30, "chain, sampled": 30 * 64, "tree, sampled": 50 * 64}


@pytest.mark.sweep("a trace each, of as many passes as a tree is deep", but=["small tree"])
@pytest.mark.parametrize("name", CHECKS)
def test_drafts_are_those_of_transformers(run: Callable[[str], Driven], name: str) -> None:
    found = run(name)
    row = CHECKS[name](found.of_proof)
    assert (row["graph"], row["level"]) == ("draft", "neutral against eager")
    assert row["values"] >= LEAST.get(name, 30)


@pytest.mark.sweep("a trace; the rule itself is in tests/light/test_rules.py")
def test_bild_stops_early_now_and_then(run: Callable[[str], Driven]) -> None:
    found = run("chain, BiLD")
    totals = {int(n) for window in found.outputs[:-1] for n in window["next_total"]}
    assert len(totals) > 1


@pytest.mark.sweep("a trace each", but=["suffix, tree"])
@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_a_drafter_without_weights_is_its_module(run: Callable[[str], Driven], name: str) -> None:
    found = run(name)
    expected = module_drafts(MAKERS[name](), found.of_proof)
    check_exact(found.outputs, expected, "draft", EAGER)


def test_states_of_several_drafters_have_names_of_their_own() -> None:
    graph = draft_graph(MAKERS["several"](), BATCH)
    names = [tensor.name for tensor in graph.inputs if tensor.role == "state"]
    kinds = [f"{kind}.{layer}" for layer in range(2) for kind in ("key", "value")]
    assert names == [*(f"drafter.{kind}" for kind in kinds), *(f"drafter.1.{kind}" for kind in kinds)]


@torch.no_grad()
def test_no_tie_loses_a_parent() -> None:
    """Draw a tree where the best token has probability one at every depth, so that its descendants are as probable as
    itself."""
    sure = decoder("llama")
    sure.model.lm_head.weight *= 1e4
    drafter = DynamicDrafter(DecoderReader(sure), 4, 2, 5)
    given = drafter_input([[5, 9, 7, 3], [8, 8, 4, 6]])
    drafted = drafter(given, [torch.zeros(state.shape) for state in drafter.states()])
    expected = FixedDrafter(DecoderReader(sure), chain(4))
    greedy = expected(given, [torch.zeros(state.shape) for state in expected.states()]).window
    for row in range(BATCH):
        tokens = {0: [int(drafted.window[row, 0])]}
        for node, parent in enumerate(drafted.parents[row].tolist()[1:], 1):
            assert 0 <= parent < node
            tokens[node] = [*tokens[parent], int(drafted.window[row, node])]
        assert greedy[row].tolist() in tokens.values()


def drafter_input(paths: list[list[int]]) -> Accepted:
    """Return whole texts, of which the last token is the bonus token; shorter ones are padded."""
    width = max(map(len, paths))
    n_path = torch.tensor([len(path) - 1 for path in paths])
    path = torch.tensor([path + [0] * (width - len(path)) for path in paths])
    return Accepted(path, n_path, torch.zeros_like(n_path), torch.arange(width))


def round_of(drafter: Drafter, texts: list[list[int]], window: torch.Tensor, n_accepted: list[int]) -> Accepted:
    """Make a round of decoding in which some drafts of a window were accepted: its own where it is a chain, else
    others."""
    paths, lengths = [], torch.tensor([len(text) - 1 for text in texts])
    for text, tokens, count in zip(texts, window.tolist(), n_accepted, strict=True):
        own = isinstance(drafter, FixedDrafter) and drafter.can_commit_drafts
        path = tokens[: count + 1] if own else [tokens[0], *range(50, 50 + count)]
        text += [*path[1:], 7 + count]
        paths.append([*path, 7 + count, *[0] * (drafter.tokens - count)])
    return Accepted(torch.tensor(paths), torch.tensor(n_accepted) + 1, lengths, torch.arange(drafter.catch_up))


@torch.no_grad()
@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedDrafter(DecoderReader(decoder("llama")), CHAIN),
        lambda: FixedDrafter(DecoderReader(decoder("llama")), CHAIN, merged=True),
        lambda: FixedDrafter(DecoderReader(decoder("mistral")), TREE),
        lambda: DynamicDrafter(DecoderReader(decoder("llama")), DEPTH, TOP_K, NODES),
    ],
)
def test_catching_up_in_decoding_is_as_good_as_reading_everything(make: Callable[[], Drafter]) -> None:
    drafter, texts = make(), [[5, 9, 7, 3, 11], [8, 8, 4]]
    empty = [torch.zeros(state.shape) for state in drafter.states()]
    drafted = drafter(drafter_input(texts), empty)
    for n_accepted in ([2, 3], [3, 0], [0, 3], [1, 2], [3, 3]):
        drafted = drafter(round_of(drafter, texts, drafted.window, n_accepted), drafted.states)
        again = drafter(drafter_input(texts), empty)
        assert torch.equal(drafted.window, again.window)
        assert drafted.parents is again.parents is None or torch.equal(drafted.parents, again.parents)
