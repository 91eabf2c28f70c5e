"""Windows of a round, small enough to write down: what sees what, where it stands, and what of the drafts is kept."""

import pytest
import torch

from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.tree import Tree

TREE = Tree((-1, 0, 0, 1, 1, 3))
"""Node 1 and 2 follow the root, 3 and 4 node 1, 5 node 3."""


def rows(*values: object) -> torch.Tensor:
    return torch.tensor(values)


def test_a_chain_stands_in_a_row_and_sees_what_is_before_it():
    layout = ChainLayout().layout(torch.zeros(2, 4, dtype=torch.int64), rows(1, 3), rows(0, 10), None)
    assert layout.positions.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]
    for visible in layout.visible.expand(2, -1, -1):
        assert visible.long().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ([False, True, True], 0),
        ([True, False, True], 1),
        ([True, True, False], 2),
        ([True, True, True], 3),
        ([False, False, False], 0),
    ],
)
def test_a_chain_is_accepted_up_to_the_first_refusal(accepted, expected):
    walk = ChainLayout().walk(rows(accepted), torch.zeros(1, 5, dtype=torch.int64), rows(2), None)
    assert (walk.n_accepted.tolist(), walk.last.tolist()) == ([expected], [expected])
    assert walk.order is walk.nodes is None


def shapes():
    constant, dynamic = TreeLayout(TREE, 6, TREE.depth), TreeLayout(None, 6, TREE.depth)
    return [(constant, constant.nodes(None, 1)), (dynamic, dynamic.nodes(rows(list(TREE.parents)), 1))]


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_tree_s_nodes_see_their_ancestors(is_dynamic):
    """Mask two given tokens, whose last is the root, and padding behind."""
    shape, nodes = shapes()[is_dynamic]
    assert nodes.depths.tolist() == [[0, 1, 1, 2, 2, 3]]
    layout = shape.layout(torch.zeros(1, 7, dtype=torch.int64), rows(2), rows(10), nodes)
    assert layout.positions.tolist() == [[10, 11, 12, 12, 13, 13, 14]]
    assert layout.visible[0].long().tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 0, 0, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [1, 1, 1, 0, 0, 1, 0],
        [1, 1, 1, 0, 1, 0, 1],
    ]


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(
    ("refused", "path"),
    [
        ([], [0, 1, 3, 5]),
        ([5], [0, 1, 3]),
        ([3], [0, 1, 4]),
        ([3, 4], [0, 1]),
        ([1], [0, 2]),
        ([1, 2], [0]),
        ([1, 2, 3, 4, 5], [0]),
        ([2, 3], [0, 1, 4]),
    ],
)
def test_of_a_tree_the_longest_accepted_path_is_kept(refused, path, is_dynamic):
    """Keep the first of several paths of the same length, and nothing behind a refused node."""
    shape, nodes = shapes()[is_dynamic]
    accepted = [node not in refused for node in range(6)]
    walk = shape.walk(rows(accepted), torch.zeros(1, 8, dtype=torch.int64), rows(2), nodes)
    assert (walk.n_accepted.tolist(), walk.last.tolist()) == ([len(path) - 1], [path[-1]])
    assert walk.nodes[0, : len(path)].tolist() == path
    assert walk.order[0, : 1 + len(path)].tolist() == [0, *(1 + node for node in path)]
    assert walk.order[0, 1 + len(path) :].tolist() == list(range(1 + len(path), 8))
