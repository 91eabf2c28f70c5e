"""Acceptance of drawn drafts, without chance: all drafts that can be drawn, with their probabilities, and all uniforms
of a grid. What comes out is the target's distribution, with nothing of the drafter's left in it."""

from collections.abc import Iterator
from itertools import permutations, product
from math import prod
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from speccompile.compiler.step.sampling import Settings
from speccompile.compiler.step.verify import Acceptance, RoundInputs
from speccompile.compiler.step.verify.methods import make_acceptance
from speccompile.compiler.step.verify.rules import Exact
from speccompile.compiler.step.verify.sampled import AcceptanceTest, Speculative
from speccompile.compiler.step.verify.target import choices, sampling_target
from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.tree import Tree, chain, from_branching

GRIDS, ERROR = {1: 64, 2: 16, 3: 8}, 1 / 90
"""Uniforms by the number of drafts, and what a coarse grid may be off."""
TARGET = torch.tensor([4.0, 2.0, 1.0, 1.0, 0.0]) / 8
DRAFTER = torch.tensor([1.0, 2.0, 4.0, 1.0]) / 8
"""Of the candidates."""
IDS = torch.tensor([0, 3, 1, 4])
"""Token 2 is none of them, and 4 is one that the target never says."""
ROOT = 4


class Cases(NamedTuple):
    """path int64 [N, D + 1]: new tokens; n_accepted int64 [N]; weights float64 [N]: how likely each case is."""

    path: Tensor
    n_accepted: Tensor
    weights: Tensor

    @property
    def first(self) -> Tensor:
        return self.path[:, 0]


def children(count: int) -> Iterator[tuple[list[int], float]]:
    """Yield places among the candidates, drawn one after the other and none twice, with their probability."""
    for places in permutations(range(len(IDS)), count):
        chance, left = 1.0, 1.0
        for place in places:
            chance *= float(DRAFTER[place]) / left
            left -= float(DRAFTER[place])
        yield list(places), chance


def settings(batch: int, **changes: float) -> Settings:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0} | changes
    rows = {name: torch.full((batch,), value) for name, value in values.items()}
    return Settings(**rows, history=torch.full((batch, 1), ROOT))


def drawn(tree: Tree) -> Iterator[tuple[list[int], float]]:
    """Yield all that a tree may hold, the root first, with its probability."""
    levels = [list(children(len(nodes))) for nodes in tree.children if nodes]
    for choice in product(*levels):
        yield (
            [ROOT, *(int(IDS[place]) for places, _ in choice for place in places)],
            prod(chance for _, chance in choice),
        )


def verify(tree: Tree, acceptance: Acceptance, n_total: int | None = None, **changes: float) -> Cases:
    """Verify all drafts of a tree, and for each a grid of uniforms: one for every draft, and one for the token behind
    them."""
    count = tree.drafts
    texts = list(drawn(tree))
    middles = (torch.arange(GRIDS[count]) + 0.5) / GRIDS[count]
    grids = torch.cartesian_prod(*[middles] * (count + 1)).reshape(-1, count + 1)
    batch = len(texts) * len(grids)
    tokens = torch.tensor([text for text, _ in texts]).repeat_interleave(len(grids), 0)
    chances = torch.tensor([chance for _, chance in texts], dtype=torch.float64)
    numbers = grids.repeat(len(texts), 1)
    probs = torch.zeros(batch, count, len(IDS))
    probs[:, [node for node, its in enumerate(tree.children) if its]] = DRAFTER
    given = RoundInputs(
        window=tokens,
        n_given=torch.ones(batch, dtype=torch.int64),
        n_total=torch.full((batch,), n_total or count + 1),
        length=torch.zeros(batch, dtype=torch.int64),
        logit_rows=torch.arange(count + 1),
        settings=settings(batch, **changes),
        uniforms=numbers[:, count:].expand(-1, count + 1),
        accept_uniforms=numbers[:, :count],
        ids=IDS.expand(batch, count, -1),
        probs=probs,
    )
    shape = ChainLayout() if tree.is_chain else TreeLayout(tree, count + 1, tree.depth)
    logits = TARGET.log().clamp(min=-1e4).expand(batch, count + 1, -1)
    seen = torch.full((batch, count + 1, 1), ROOT)
    walk, bonus = acceptance(given, logits, seen, shape, shape.nodes(None, batch))
    order = torch.arange(count + 1).expand(batch, -1) if walk.nodes is None else walk.nodes
    path = torch.cat([tokens.gather(1, order[:, 1:]), bonus], 1).scatter(1, walk.n_accepted[:, None], bonus)
    return Cases(path, walk.n_accepted, chances.repeat_interleave(len(grids)) / len(grids))


def distribution(first: Tensor, weights: Tensor) -> Tensor:
    return torch.zeros(len(TARGET), dtype=torch.float64).index_add(0, first, weights)


def close(found: Tensor, expected: Tensor, error: float = ERROR) -> bool:
    return bool((found - expected).abs().max() < error)


def accepted(p: Tensor, q: Tensor, count: int) -> float:
    """Return the chance that one of so many children, drawn from q without replacement, is accepted; both float64
    [V]."""
    if not count:
        return 0.0
    p, q, total = p / p.sum(), q / q.sum(), 0.0
    for token in q.nonzero()[:, 0].tolist():
        own = min(1.0, float(p[token] / q[token]))
        left = q.clone()
        left[token] = 0
        if own < 1:
            own += (1 - own) * accepted((p - q).clamp(min=0), left, count - 1)
        total += float(q[token]) * own
    return total


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_comes_out_is_the_target_s(count):
    tree = from_branching([count]) if count > 1 else chain(1)
    found = verify(tree, Acceptance(Exact(), Speculative(tree)))
    assert close(distribution(found.first, found.weights), TARGET.double(), 0.006)
    q = torch.zeros(len(TARGET), dtype=torch.float64).index_add(0, IDS, DRAFTER.double())
    expected = accepted(TARGET.double(), q, count)
    assert float((found.n_accepted * found.weights).sum()) == pytest.approx(expected, abs=0.006)
    assert int(found.n_accepted.max()) == 1


@pytest.mark.parametrize("tree", [Tree((-1, 0, 0, 2)), Tree((-1, 0, 0, 1)), chain(2)], ids=str)
def test_the_second_token_is_the_target_s_as_well(tree):
    """Draw behind every accepted first token, whichever of the siblings that was."""
    found = verify(tree, Acceptance(Exact(), Speculative(tree)))
    assert close(distribution(found.first, found.weights), TARGET.double(), 0.004)
    for token in (0, 1, 3):
        rows = (found.n_accepted > 0) & (found.first == token)
        weights = found.weights[rows]
        assert close(distribution(found.path[rows, 1], weights / weights.sum()), TARGET.double(), 0.01)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"top_k": 1}, [1, 0, 0, 0, 0]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.75}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"min_p": 0.25}, [0.5, 0.25, 0.125, 0.125, 0]),
        ({"min_p": 0.5}, [2 / 3, 1 / 3, 0, 0, 0]),
    ],
)
def test_filters_come_before_it(changes, expected):
    tree = from_branching([2])
    cases = verify(tree, Acceptance(Exact(), Speculative(tree)), **changes)
    found = distribution(cases.first, cases.weights)
    assert close(found, torch.tensor(expected, dtype=torch.float64))
    assert not found[torch.tensor(expected) == 0].any()


@pytest.mark.parametrize("lenience", [0.25, 0.5, 1.0])
def test_lenience_accepts_more_and_no_more_than_it_says(lenience):
    """min(1, p / (lenience q)): the share of all drafts that are accepted."""
    tree = chain(1)
    found = verify(tree, Acceptance(Exact(), Speculative(tree, lenience)))
    expected = torch.minimum(TARGET[IDS] / lenience, DRAFTER).sum()
    assert close((found.n_accepted * found.weights).sum(), expected.double())


@pytest.mark.parametrize("n_total", [1, 2])
def test_padding_is_no_draft(n_total):
    tree = from_branching([2])
    found = verify(tree, Acceptance(Exact(), Speculative(tree)), n_total)
    assert close(distribution(found.first, found.weights), TARGET.double())
    assert bool(found.n_accepted.any()) == (n_total > 1)


def test_a_draft_that_the_target_never_says_is_never_accepted():
    tree = chain(1)
    assert not (verify(tree, Acceptance(Exact(), Speculative(tree, 0.01))).first == 4).any()


def test_without_temperature_the_best_token_alone_is_accepted():
    for tree in (chain(1), from_branching([2])):
        found = verify(tree, Acceptance(Exact(), Speculative(tree)), temperature=0.0)
        assert (found.first == 0).all()
        assert 0 < found.n_accepted.float().mean() < 1


def draft_of(uniform: float, p: float, q: float, uniforms: tuple[float, float] = (0.5, 0.5)) -> tuple[bool, int]:
    """Return whether a chain's draft with these probabilities is accepted, and the token behind. uniforms: of every
    depth."""
    probs, tree = torch.tensor([[[q, 1 - q]]]), chain(1)
    given = RoundInputs(
        window=torch.tensor([[1, 0]]), n_given=torch.ones(1, dtype=torch.int64), n_total=torch.tensor([2]),
        length=torch.zeros(1, dtype=torch.int64), logit_rows=torch.arange(2), settings=settings(1),
        uniforms=torch.tensor([uniforms]), accept_uniforms=torch.tensor([[uniform]]), ids=torch.tensor([[[0, 1]]]),
        probs=probs,
    )  # fmt: skip
    logits = torch.tensor([p, 1 - p]).log().expand(1, 2, -1)
    walk, bonus = Acceptance(Exact(), Speculative(tree))(
        given, logits, torch.zeros(1, 2, 1, dtype=torch.int64), ChainLayout(), None
    )
    return bool(walk.n_accepted[0]), int(bonus)


@pytest.mark.parametrize(
    ("uniform", "p", "q", "expected"),
    [
        (0.0, 0.25, 0.75, True),
        (0.32, 0.25, 0.75, True),
        (0.34, 0.25, 0.75, False),
        (0.99, 0.75, 0.25, True),
        (0.99, 0.5, 0.5, True),
        (0.5, 0.25, 0.5625, False),
    ],
)
def test_a_draft_is_accepted_with_p_over_q(uniform, p, q, expected):
    assert draft_of(uniform, p, q)[0] == expected


def test_where_nothing_is_left_the_target_is_drawn_from():
    """p and q are equal up to rounding, and the draft was rejected: its place has no weight on any token."""
    seen, nodes = torch.zeros(1, 2, 1, dtype=torch.int64), torch.zeros(1, 1, 2, dtype=torch.bool)
    for uniform, expected in ((0.1, 0), (0.7, 1)):
        logits = torch.tensor([[0.5, 0.5]]).log().expand(1, 2, -1)
        target = sampling_target(logits, settings(1), seen, torch.full((1, 2), uniform))
        trial, root = AcceptanceTest(nodes, torch.zeros(1, 1, 2)), torch.zeros(1, dtype=torch.int64)
        assert int(Speculative(chain(1)).bonus(target, trial, torch.tensor([[[0, 1]]]), root, root)) == expected


def test_every_depth_has_a_uniform_of_its_own():
    assert draft_of(0.0, 0.5, 0.5, (0.1, 0.9)) == (True, 1)
    assert draft_of(0.0, 0.5, 0.5, (0.9, 0.1)) == (True, 0)
    target = sampling_target(
        torch.tensor([[0.5, 0.5]]).log().expand(1, 4, -1), settings(1), torch.zeros(1, 4, 1, dtype=torch.int64),
        torch.tensor([[0.1, 0.9, 0.2, 0.8]]),
    )  # fmt: skip
    assert choices(target, None).tolist() == [[0, 1, 0, 1]]
    assert choices(target, torch.tensor([[0, 1, 1, 2]])).tolist() == [[0, 1, 1, 0]]
    greedy = target._replace(is_sampled=torch.tensor([[False]]), best=torch.tensor([[1, 1, 0, 0]]))
    assert choices(greedy, None).tolist() == [[1, 1, 0, 0]]


def test_which_rule_a_bundle_has():
    """Drawn drafts need the sampled rule, under every method; certain ones only with lenience where it samples."""
    tree = chain(2)
    for is_sampling in (False, True):
        for draws in (False, True):
            exact = make_acceptance("exact", {}, tree=tree, is_sampling=is_sampling, draws=draws)
            assert (exact.speculative is not None) == (is_sampling and draws)
            assert exact.speculative is None or exact.speculative.lenience == 1.0
            lenient = make_acceptance("lenience", {"lenience": 0.5}, tree=tree, is_sampling=is_sampling, draws=draws)
            assert (lenient.speculative is not None) == is_sampling
            assert lenient.speculative is None or lenient.speculative.lenience == 0.5
            made = make_acceptance("exact", {}, tree=None, is_sampling=is_sampling, draws=draws)
            assert made.speculative is None
    parameters = {"epsilon": 0.25, "delta": 0.75, "k": 3.0, "gap": 1.5, "lenience": 0.5, "rollback": 2.0}
    for method, expected in {"typical": (0.25, 0.75), "top_k": (3, 1.5), "lenience": (0.5,), "bild": (2.0,)}.items():
        rule = make_acceptance(method, parameters, tree=None, is_sampling=False, draws=False).rule
        assert tuple(vars(rule).values()) == expected


@pytest.mark.parametrize("is_sampling", [False, True])
def test_a_hidden_token_is_never_chosen(is_sampling):
    acceptance = make_acceptance("exact", {}, tree=chain(1), is_sampling=is_sampling, draws=False, hidden=(1, 3))
    logits = torch.tensor([[[0.0, 9.0, 2.0, 8.0], [0.0, 9.0, -1.0, 8.0]]])
    more = {"settings": settings(1, temperature=1e4), "uniforms": torch.tensor([[0.999, 0.3]])} if is_sampling else {}
    for draft, path in ((2, [2, 0]), (1, [2])):
        given = RoundInputs(
            window=torch.tensor([[0, draft]]), n_given=torch.tensor([1]), n_total=torch.tensor([2]),
            length=torch.tensor([0]), logit_rows=torch.arange(2), **more,
        )  # fmt: skip
        seen = torch.zeros(1, 2, 1, dtype=torch.int64)
        walk, bonus = acceptance(given, logits, seen, ChainLayout(), None)
        assert [*[2] * int(walk.n_accepted), int(bonus)] == path
