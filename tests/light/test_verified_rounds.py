"""A round of the target whose decoder is a table: what is accepted, written behind it, and committed, row by row."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from speccompile.compiler.step.verify import RoundInputs, Verify
from speccompile.compiler.step.window import TreeLayout
from speccompile.tree import Tree

VOCABULARY, WIDTH = 20, 7


def said_after(token: int) -> int:
    return (3 * token + 1) % VOCABULARY


class Current:
    """What is being computed: the rows of a cache are the window's tokens."""

    def __init__(self, caches: list[Tensor]) -> None:
        self.caches, self.window = caches, torch.zeros(0)

    def set_positions(self, *_: object) -> None:
        pass

    def rows(self) -> list[Tensor]:
        return [self.window[:, None, :, None].float()]

    def commit(self, rows: list[Tensor], count: Tensor) -> list[Tensor]:
        return [rows[0][:, 0, :, 0], count]


class Table(torch.nn.Module):
    is_recurrent = False
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=1))

    def clamp(self, positions: Tensor) -> Tensor:
        return positions

    def begin(self, caches: list[Tensor], length: Tensor, source_length: Tensor | None = None) -> Current:
        return Current(caches)

    def run(self, current: Current, window: Tensor, rows: Tensor, taps: object) -> Tensor:
        current.window = window
        return torch.nn.functional.one_hot((3 * window.gather(1, rows) + 1) % VOCABULARY, VOCABULARY).float()


def verified(window: list[int], n_given: int, n_total: int, tree: Tree | None = None, **more: int):
    shape = None if tree is None else TreeLayout(tree, tree.drafts + 1, tree.depth)
    size = WIDTH if tree is None else tree.drafts + 1
    graph = Verify(Table(), shape, **more)
    padded = [*window, *[0] * (WIDTH - len(window))]
    counts = (torch.tensor([value, value]) for value in (n_given, n_total, 30))
    return graph(RoundInputs(torch.tensor([padded, padded]), *counts, torch.arange(size)), [])


def chain_of(first: int, right: int, count: int) -> list[int]:
    """Return `count` drafts behind a token, of which the first `right` are what is said."""
    found = [first]
    for place in range(count):
        found.append((said_after(found[-1]) + (place >= right)) % VOCABULARY)
    return found[1:]


@pytest.mark.parametrize("n_given", [1, 2, 3])
@pytest.mark.parametrize("right", range(4))
@pytest.mark.parametrize("shown", range(4))
def test_a_chain_is_accepted_up_to_its_first_wrong_draft(n_given, right, shown):
    """Accept shown drafts; the token behind them is what the target says there."""
    given = [4, 9, 5][:n_given]
    drafts = chain_of(given[-1], right, 3)
    found = verified([*given, *drafts], n_given, n_given + shown)
    kept = min(right, shown)
    path = [*given, *drafts[:kept]]
    for row in range(2):
        assert found.n_path[row] == len(path)
        assert found.path[row, : len(path) + 1].tolist() == [*path, said_after(path[-1])]
    rows, count = found.caches
    assert rows[0, : len(path)].tolist() == path
    assert count.tolist() == [len(path)] * 2
    assert found.nodes is found.features is found.successors is None


def test_an_idle_row_has_no_path():
    assert verified([4, 5], 0, 0).n_path.tolist() == [0, 0]
    assert verified([4, 5], 0, 0).caches[1].tolist() == [0, 0]


TREE = Tree((-1, 0, 0, 1, 2))


@pytest.mark.parametrize("n_given", [1, 3])
@pytest.mark.parametrize(
    ("right", "nodes"),
    [
        ([], [0]),
        ([1], [0, 1]),
        ([2], [0, 2]),
        ([1, 3], [0, 1, 3]),
        ([2, 4], [0, 2, 4]),
        ([3, 4], [0]),
        ([2, 3], [0, 2]),
    ],
)
def test_of_a_tree_the_accepted_path_is_committed_in_its_order(right, nodes, n_given):
    given = [4, 9, 5][:n_given]
    tokens = [given[-1]]
    for node in range(1, 5):
        tokens.append((said_after(tokens[TREE.parents[node]]) + (node not in right) * node) % VOCABULARY)
    found = verified([*given, *tokens[1:]], n_given, n_given + 4, TREE)
    path = [*given, *(tokens[node] for node in nodes[1:])]
    assert found.n_path.tolist() == [len(path)] * 2
    assert found.path[0, : len(path) + 1].tolist() == [*path, said_after(path[-1])]
    assert found.nodes[0, : len(nodes)].tolist() == nodes
    rows, count = found.caches
    assert rows[0, : len(path)].tolist() == path
    assert count.tolist() == [len(path)] * 2


def test_what_a_drafter_learns_from():
    """Return the best tokens behind every row, and -1 where there is no token."""
    found = verified([4, 9, 5, 6], 2, 3, successors=2)
    assert found.row_tokens[0].tolist() == [9, 5, *[-1] * (WIDTH - 2)]
    assert found.successors[0, :2, 0].tolist() == [said_after(9), said_after(5)]
    assert verified([4], 0, 0, successors=1).row_tokens[0].tolist() == [-1] * WIDTH
