"""Drafts that are drawn, in eager torch: against closed forms."""

import itertools

import numpy as np
import pytest
import torch

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove.processors import probabilities
from speccompile.compiler.step.draft import Accepted, Drafted
from speccompile.compiler.step.sampling import candidates, draw_candidate
from speccompile.tree import Tree, chain, from_branching, from_paths
from tests.compile.table_drafter import TableDrafter, settings

TABLE = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
SURE = torch.full((5, 5), -1e9).fill_diagonal_(0.0)


def draw(table: torch.Tensor, tree: Tree, rows: int, candidates: int = 5, seed: int = 1, **changes: float) -> Drafted:
    """Return drafts after token 2 in many rows, each with numbers of its own."""
    n_path = torch.ones(rows, dtype=torch.int64)
    uniforms = torch.rand(rows, tree.drafts, generator=torch.Generator().manual_seed(seed))
    path = torch.tensor([[1, 2, 4]]).expand(rows, -1)
    given = Accepted(path, n_path, n_path, settings=settings(rows, **changes), uniforms=uniforms)
    return TableDrafter(table, tree, candidates)(given, [])


def test_children_are_drawn_without_replacement():
    rows = 40_000
    drafted = draw(TABLE, from_branching([3]), rows)
    p = torch.softmax(TABLE[2], 0).double().numpy()
    for order in itertools.permutations(range(5), 3):
        expected = p[order[0]] * p[order[1]] / (1 - p[order[0]]) * p[order[2]] / (1 - p[order[0]] - p[order[1]])
        found = (drafted.window[:, 1:] == torch.tensor(order)).all(1).double().mean()
        assert abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / rows)


def test_a_child_is_drawn_after_its_own_parent():
    rows = 40_000
    drafted = draw(TABLE, from_paths([[0], [1], [1, 0]]), rows)
    for parent in range(5):
        those = drafted.window[:, 2] == parent
        expected = torch.softmax(TABLE[parent], 0)
        found = torch.bincount(drafted.window[those, 3], minlength=5) / those.sum()
        assert (found - expected).abs().max() < 4.5 * 0.5 / those.sum() ** 0.5


def test_the_table_of_probabilities_has_rows_for_nodes_with_children_alone():
    drafted = draw(TABLE, from_paths([[0], [1], [1, 0], [1, 0, 0]]), 3, top_k=2)
    assert drafted.probs.shape == drafted.ids.shape == (3, 4, 5)
    torch.testing.assert_close(drafted.probs.sum(2), torch.tensor([[1.0, 0.0, 1.0, 1.0]] * 3))
    assert ((drafted.probs > 0).sum(2) == torch.tensor([2, 0, 2, 2])).all()
    best = TABLE[2].sort(descending=True)
    assert (drafted.ids[:, 0] == best.indices).all()
    torch.testing.assert_close(drafted.probs[0, 0, :2], torch.softmax(best.values[:2], 0))


def test_where_nothing_is_left_to_draw_the_best_stands_again():
    drafted = draw(TABLE, from_branching([4]), 50, top_k=2)
    best = TABLE[2].topk(2).indices
    assert {tuple(sorted(row)) for row in drafted.window[:, 1:3].tolist()} == {tuple(sorted(best.tolist()))}
    assert (drafted.window[:, 3:] == best[0]).all()


@pytest.mark.parametrize("tree", [chain(3), from_branching([2, 1])])
def test_without_temperature_the_best_candidates_are_taken(tree):
    drawn = draw(TABLE, tree, 6, temperature=0.0)
    assert torch.equal(drawn.window, TableDrafter(TABLE, tree)(_certain(6), []).window)


def _certain(rows: int) -> Accepted:
    ones = torch.ones(rows, dtype=torch.int64)
    return Accepted(torch.tensor([[1, 2, 4]]).expand(rows, -1), ones, ones)


def test_every_token_before_a_draft_is_penalized_and_none_behind():
    """Forbid by penalties: history 0, path 1 and 2, and its own drafts, but not the 4 behind the bonus token."""
    table = torch.full((5, 5), 1.0) + 0.1 * TABLE
    drafted = draw(table, chain(2), 20, temperature=0.1, repetition_penalty=1e4)
    assert {tuple(sorted(row)) for row in drafted.window[:, 1:].tolist()} == {(3, 4)}


def test_a_sure_drafter_draws_what_it_is_sure_of():
    drafted = draw(SURE, from_branching([2, 2]), 4)
    assert (drafted.window == 2).all()
    assert (drafted.probs.amax(2)[:, :3] == 1).all()


@pytest.mark.parametrize(
    "filters", [{"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2}, {"top_k": 4, "top_p": 0.9, "min_p": 0.1}]
)
def test_candidates_are_filtered_as_transformers_does_it(filters):
    ids, probs = candidates(TABLE[None], 5, settings(1, **filters))
    for row, logits in enumerate(TABLE):
        expected = probabilities(logits.numpy(), [0], SamplingParams(1.0, **filters))
        np.testing.assert_allclose(probs[0, row], expected[ids[0, row]], rtol=1e-5)


def test_what_has_no_weight_is_not_drawn_by_the_smallest_number_or_the_largest():
    weights = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0])
    drawn = [int(draw_candidate(weights, torch.tensor(uniform))) for uniform in (0.0, 0.25, 1 - 2**-24)]
    assert drawn == [1, 3, 3]
