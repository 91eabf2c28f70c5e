"""Windows of trees in eager torch, against plain Python: what sees what, where it stands, and which path is kept."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from speccompile.compiler.step.sampling import Settings
from speccompile.compiler.step.verify import AcceptedPath, RoundInputs, _nodes, _preceding_tokens
from speccompile.compiler.step.window import TreeLayout
from speccompile.tree import Tree, chain, from_branching, from_paths
from tests.compile.table_drafter import settings

TREES = (
    chain(4),
    from_branching([3]),
    from_branching([2, 2, 1]),
    from_paths([[0], [1], [2], [0, 0], [1, 0], [1, 1], [1, 1, 0]]),
    Tree((-1, 0, 0, 1, 2, 2, 3, 4)),
)
DEPTH = 4
"""Of the deepest tree that a dynamic window may hold: the others are less deep."""


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Tree], list[int], int]:
    """Return one tree of equal size in each row, how many tokens are given there, and a width that holds them."""
    first = draw(st.sampled_from(TREES))
    trees = [
        draw(st.sampled_from([t for t in TREES if t.drafts == first.drafts])) for _ in range(draw(st.integers(1, 3)))
    ]
    given_tokens = [draw(st.integers(1, 4)) for _ in trees]
    return trees, given_tokens, max(given_tokens) + first.drafts + draw(st.integers(0, 2))


def shapes(trees: list[Tree]):
    """Yield the window's shape and its nodes: dynamic, and constant too where all rows hold one tree."""
    size = trees[0].drafts + 1
    dynamic = TreeLayout(None, size, DEPTH)
    yield dynamic, dynamic.nodes(torch.tensor([tree.parents for tree in trees]), len(trees))
    if len(set(trees)) == 1:
        constant = TreeLayout(trees[0], size, trees[0].depth)
        yield constant, constant.nodes(None, len(trees))


@given(windows())
def test_every_token_sees_its_ancestors_and_stands_behind_them(case):
    trees, n_given, width = case
    for shape, nodes in shapes(trees):
        length = torch.tensor([10 * row for row in range(len(trees))])
        layout = shape.layout(torch.zeros(len(trees), width, dtype=torch.int64), torch.tensor(n_given), length, nodes)
        for row, (tree, count) in enumerate(zip(trees, n_given, strict=True)):
            for place in range(count + tree.drafts):
                node = max(0, place - (count - 1))
                above = [count - 1 + each for each in tree.root_paths[node] if each]
                seen = sorted({*range(min(place + 1, count)), *above})
                assert layout.visible[row, place].nonzero()[:, 0].tolist() == seen
                assert layout.positions[row, place] == 10 * row + len(seen) - 1


@given(windows(), st.data())
def test_the_longest_accepted_path_is_kept_in_order(case, data):
    trees, n_given, width = case
    size = trees[0].drafts + 1
    accepted = [data.draw(st.lists(st.booleans(), min_size=size, max_size=size)) for _ in trees]
    for shape, nodes in shapes(trees):
        window = torch.zeros(len(trees), width, dtype=torch.int64)
        walk = shape.walk(torch.tensor(accepted), window, torch.tensor(n_given), nodes)
        for row, (tree, count) in enumerate(zip(trees, n_given, strict=True)):
            open_nodes = [n for n in range(size) if all(accepted[row][each] for each in tree.root_paths[n][1:])]
            best = min(open_nodes, key=lambda node, tree=tree: (-tree.depths[node], node))
            path = list(tree.root_paths[best])
            assert (walk.last[row], walk.n_accepted[row]) == (best, len(path) - 1)
            assert walk.nodes[row, : len(path)].tolist() == path
            kept = [*range(count - 1), *(count - 1 + node for node in path)]
            assert walk.order[row, : len(kept)].tolist() == kept


def test_logits_of_new_tokens_are_found_at_the_nodes_of_the_path():
    walk = AcceptedPath(
        torch.tensor([2, 0, 3]), torch.tensor([5, 0, 7]), None, torch.tensor([[0, 2, 5, 0], [0] * 4, [0, 1, 4, 7]])
    )
    assert _nodes(walk, torch.arange(6)).tolist() == [[0, 2, 5, 5, 5, 5], [0] * 6, [0, 1, 4, 7, 7, 7]]
    assert _nodes(walk, torch.arange(1)).tolist() == [[0]] * 3
    assert _nodes(walk._replace(nodes=None), torch.arange(1)) is None


def test_what_is_penalized_at_a_node_is_the_history_and_what_it_sees():
    tree, n_given, width = from_branching([2, 1]), torch.tensor([3, 1]), 8
    shape = TreeLayout(tree, 5, 2)
    nodes = shape.nodes(None, 2)
    window = torch.arange(20, 36).view(2, width)
    history = torch.tensor([[1, 2], [3, 3]])
    sampled: Settings = settings(2)._replace(history=history)
    case = RoundInputs(
        window, n_given, n_given + 4, torch.zeros(2, dtype=torch.int64), torch.arange(5), settings=sampled
    )
    rows = n_given[:, None] - 1 + torch.arange(5)
    seen = _preceding_tokens(case, rows, shape.layout(window, n_given, case.length, nodes).visible)
    for row in range(2):
        for node, lineage in enumerate(tree.root_paths):
            first, root = window[row, : n_given[row]].tolist(), int(n_given[row]) - 1
            own = [int(window[row, root + each]) for each in lineage[1:]]
            assert set(seen[row, node].tolist()) == {*history[row].tolist(), *first, *own}
    assert _preceding_tokens(case._replace(settings=None), rows, seen) is None
