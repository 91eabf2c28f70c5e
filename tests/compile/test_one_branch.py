"""A tree with one branch is a chain: the same tokens, the same rows in the caches, whatever the acceptance. In eager
torch, since a recipe never builds such a tree."""

from collections.abc import Iterator

import pytest
import torch

from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.sampling import Settings
from speccompile.compiler.step.verify import RoundInputs, Verified, Verify
from speccompile.compiler.step.verify.methods import make_acceptance
from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.contract import MAX_DRAFT_CANDIDATES
from speccompile.tree import chain
from tests import zoo

DRAFTS, BATCH, ROWS, ROUNDS = 3, 3, 64, 14
NODES = DRAFTS + 1
VOCABULARY = zoo.VOCABULARY


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def decoder(request) -> Decoder:
    return probe(zoo.model(request.param).requires_grad_(False), CacheShape(BATCH, ROWS, ROWS))


def rounds(random: torch.Generator, sampling: bool, draws: bool) -> Iterator[RoundInputs]:
    """Return a prefill, then rounds with drafts, as a host would give them; the first token stands for what was
    accepted."""
    length = torch.zeros(BATCH, dtype=torch.int64)
    for number in range(ROUNDS):
        width = 9 if number == 0 else NODES
        n_given = torch.tensor([9, 5, 1]) if number == 0 else torch.tensor([1, 1, number % 2])
        n_drafts = torch.zeros_like(n_given) if number == 0 else torch.tensor([DRAFTS, number % NODES, DRAFTS])
        window = torch.randint(3, VOCABULARY, (BATCH, width), generator=random)
        rows = torch.arange(1 if number == 0 else NODES)
        yield RoundInputs(window, n_given, n_given + n_drafts, length, rows, *settings(random, rows, sampling, draws))
        length = length + n_given


def settings(random: torch.Generator, rows: torch.Tensor, sampling: bool, draws: bool) -> tuple[object, ...]:
    if not sampling:
        return ()
    uniforms = torch.rand(BATCH, rows.shape[0], generator=random)
    history = torch.randint(3, VOCABULARY, (BATCH, 5), generator=random)
    found = Settings(
        torch.tensor([0.0, 2.0, 4.0]), torch.tensor([0, 9, 0]), torch.tensor([1.0, 1.0, 0.9]), torch.zeros(BATCH),
        torch.tensor([1.0, 1.2, 1.0]), history,
    )  # fmt: skip
    if not draws:
        return found, uniforms
    probs = torch.rand(BATCH, DRAFTS, MAX_DRAFT_CANDIDATES, generator=random).softmax(-1)
    ids = torch.stack(
        [torch.randperm(VOCABULARY, generator=random)[:MAX_DRAFT_CANDIDATES] for _ in range(BATCH * DRAFTS)]
    )
    return found, uniforms, torch.rand(BATCH, DRAFTS, generator=random), ids.reshape(probs.shape), probs


def with_good_drafts(
    given: RoundInputs, decoder: Decoder, caches: list[torch.Tensor], random: torch.Generator
) -> RoundInputs:
    """Return drafts of which some come true: the target's own, one after the other, and now and then another."""
    window = given.window.clone()
    if window.shape[1] == NODES:
        for place in range(1, NODES):
            logits = Verify(decoder)(given._replace(window=window, settings=None), caches).logits
            is_right = torch.rand(BATCH, generator=random) < 0.7
            after = logits[torch.arange(BATCH), place - 1].argmax(-1)
            window[:, place] = torch.where(is_right, after, window[:, place])
    if given.ids is None:
        return given._replace(window=window)
    ids = given.ids.clone()
    if window.shape[1] == NODES:
        ids[:, :, 0] = window[:, 1:]  # a draft is one of its candidates
    return given._replace(window=window, ids=ids)


def committed(found: Verified, given: RoundInputs) -> Iterator[torch.Tensor]:
    for row in range(BATCH):
        if given.n_given[row]:
            yield found.path[row, : found.n_path[row] + 1]
            yield from (cache[row, :, : given.length[row] + found.n_path[row]] for cache in found.caches)


@pytest.mark.parametrize(
    ("method", "parameters", "sampling", "draws"),
    [
        ("exact", {}, False, False),
        ("exact", {}, True, False),
        ("exact", {}, True, True),
        ("typical", {"epsilon": 0.09, "delta": 0.3}, False, False),
        ("top_k", {"k": 3, "gap": 2.0}, True, False),
    ],
)
def test_a_tree_with_one_branch_is_a_chain(decoder, method, parameters, sampling, draws):
    tree, random = chain(DRAFTS), torch.Generator().manual_seed(0)
    acceptance = make_acceptance(method, parameters, tree=tree, is_sampling=sampling, draws=draws)
    straight = Verify(decoder, ChainLayout(), acceptance)
    trees = {
        "constant": Verify(decoder, TreeLayout(tree, NODES, DRAFTS), acceptance),
        "given": Verify(decoder, TreeLayout(None, NODES, DRAFTS), acceptance),
    }
    parents = torch.tensor([tree.parents] * BATCH)
    caches = [torch.zeros(shape) for shape in decoder.cache_shapes().values()]
    lengths = set[int]()
    for given in rounds(random, sampling, draws):
        given = with_good_drafts(given, decoder, caches, random)
        expected = straight(given, caches)
        lengths |= set((expected.n_path - given.n_given).tolist())
        for name, verify in trees.items():
            found = verify(given._replace(parents=parents if name == "given" else None), caches)
            assert found.n_path.tolist() == expected.n_path.tolist()
            for ours, theirs in zip(committed(found, given), committed(expected, given), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
        caches = expected.caches
    assert lengths == set(range(DRAFTS + 1))
