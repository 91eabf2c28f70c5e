"""Token trees: their forms, what is derived from their parents, and what is no tree."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccompile.tree import (
    EAGLE_25,
    MEDUSA_63,
    Tree,
    TreeError,
    chain,
    from_branching,
    from_parents,
    from_paths,
    merged,
    merged_indices,
)

PARENTS = st.lists(st.integers(0, 10**6), max_size=30).map(
    lambda draws: [-1, *(draw % node for node, draw in enumerate(draws, 1))]
)
"""Parents of any tree whose nodes come after their parents, in no other order."""
TREES = PARENTS.map(from_parents)


def adjacency(parents):
    """Return [child][parent] of a list of parents."""
    matrix = np.zeros((len(parents), len(parents)), int)
    for node, parent in enumerate(parents):
        if parent >= 0:
            matrix[node, parent] = 1
    return matrix


@given(TREES)
def test_what_is_derived_is_what_powers_of_the_adjacency_matrix_say(tree):
    steps = adjacency(tree.parents)
    powers = [np.linalg.matrix_power(steps, exponent) for exponent in range(len(tree.parents))]
    reach = sum(powers)
    assert np.array_equal(np.array(tree.ancestors()), reach > 0)
    assert tree.depths == tuple(next(length for length, power in enumerate(powers) if power[node, 0]) for node in
                                range(len(tree.parents)))  # fmt: skip
    assert [len(children) for children in tree.children] == steps.sum(0).tolist()
    assert (tree.depth, tree.drafts) == (max(tree.depths), len(tree.parents) - 1)
    assert tree.branching == steps.sum(0).max()
    assert tree.is_chain == (tree.parents == chain(tree.drafts).parents)
    assert [sorted(lineage) for lineage in tree.root_paths] == [np.flatnonzero(row).tolist() for row in reach]


@given(TREES)
def test_nodes_lie_by_depth_and_siblings_by_rank(tree):
    assert list(tree.depths) == sorted(tree.depths)
    for children in tree.children:
        assert list(children) == list(range(children[0], children[-1] + 1) if children else [])
        assert [tree.ranks[node] for node in children] == list(range(len(children)))


@given(TREES.filter(lambda tree: tree.drafts), st.randoms())
def test_paths_lead_back_to_their_tree_in_any_order(tree, random):
    paths = tree.paths()
    random.shuffle(paths)
    assert from_paths(paths) == tree


@given(PARENTS, st.randoms())
def test_parents_make_the_same_shape_whatever_the_order_of_nodes(parents, random):
    order = random.sample(range(len(parents)), len(parents))
    place = {node: index for index, node in enumerate(order)}
    shuffled = [-1 if parents[node] < 0 else place[parents[node]] for node in order]

    def shape(list_of_parents, node):
        return sorted(shape(list_of_parents, child) for child, its in enumerate(list_of_parents) if its == node)

    tree = from_parents(shuffled)
    assert shape(tree.parents, 0) == shape(parents, 0)
    assert from_parents(tree.parents) == tree


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_branching_factors_are_paths_of_all_their_ranks(factors):
    paths = [path for depth in range(1, len(factors) + 1) for path in np.ndindex(*factors[:depth])]
    assert from_branching(factors) == from_paths(paths)


def test_a_chain_is_one_path():
    assert chain(3) == from_branching([1, 1, 1]) == from_paths([[0], [0, 0], [0, 0, 0]])
    assert chain(3).is_chain
    assert (chain(0).drafts, chain(0).depth, chain(0).is_chain) == (0, 0, True)
    assert not from_branching([2]).is_chain


@pytest.mark.parametrize(
    ("tree", "drafts", "by_depth", "children_of_the_root"),
    [
        # Cai et al. 2024, medusa_choices.py: mc_sim_7b_63
        (MEDUSA_63, 63, {0: 1, 1: 10, 2: 28, 3: 23, 4: 2}, 10),
        # Li et al. 2024, figure of the draft tree; EAGLE's model/choices.py
        (EAGLE_25, 25, {0: 1, 1: 4, 2: 8, 3: 8, 4: 3, 5: 2}, 4),
    ],
)
def test_the_published_trees(tree, drafts, by_depth, children_of_the_root):
    assert tree.drafts == drafts
    assert Counter(tree.depths) == by_depth
    assert len(tree.children[0]) == children_of_the_root


@given(st.lists(TREES, min_size=1, max_size=4))
def test_a_merged_tree_holds_every_tree_at_its_places(trees):
    whole, places = merged(trees), merged_indices(trees)
    assert sorted(place for its in places for place in its) == list(range(1, whole.drafts + 1))
    for tree, its in zip(trees, places, strict=True):
        place = [0, *its]
        assert [whole.parents[place[node]] for node in range(1, tree.drafts + 1)] == [
            place[parent] for parent in tree.parents[1:]
        ]
    for before, after in pairwise(places):
        for depth in range(1, whole.depth + 1):
            ours = [place for place in before if whole.depths[place] == depth]
            theirs = [place for place in after if whole.depths[place] == depth]
            assert not ours or not theirs or max(ours) < min(theirs)


@pytest.mark.parametrize(
    ("make", "written", "message"),
    [
        (Tree, (), r"received \[\] as the first parent, expected -1, which marks the root"),
        (Tree, (0, 0), r"received \[0\] as the first parent, expected -1"),
        (Tree, (-1, 1), "received node 1 with parent 1, expected one of the nodes before it"),
        (Tree, (-1, 0, -1), "received node 2 with parent -1, expected one of the nodes before it"),
        (Tree, (-1, 0, 1, 0), "received node 3 out of order, expected nodes by depth and by parent"),
        (from_branching, [], "received no branching factor, expected one from 1 on for every depth"),
        (from_branching, [2, 0], "received a branching factor of 0, expected one from 1 on for every depth"),
        (from_branching, [-1], "received a branching factor of -1, expected one from 1 on"),
        (from_paths, [], "received an empty path or no path, expected paths of one rank or more"),
        (from_paths, [[0], []], "received an empty path or no path, expected paths of one rank or more"),
        (from_paths, [[0], [0]], r"received the path \[0\] twice, expected every node once"),
        (from_paths, [[0], [-1]], r"received the path \[-1\], expected ranks from 0 on"),
        (from_paths, [[0], [1, 0]], r"received the path \[1, 0\] without \[1\], expected its parent as well"),
        (from_paths, [[1]], r"received the path \[1\] without \[0\], expected the better token as well"),
        (from_paths, [[0], [0, 1]], r"received the path \[0, 1\] without \[0, 0\], expected the better token as well"),
        (from_paths, [[0], [2]], r"received the path \[2\] without \[1\], expected the better token as well"),
        (from_parents, [], "received 0 roots, expected one node whose parent is -1"),
        (from_parents, [0, 1], "received 0 roots, expected one node whose parent is -1"),
        (from_parents, [-1, 0, -1], "received 2 roots, expected one node whose parent is -1"),
        (from_parents, [-1, 0, 3], "received node 2 with parent 3, expected one of the nodes 0 to 2"),
        (from_parents, [-1, -2], "received node 1 with parent -2, expected one of the nodes 0 to 1"),
        (from_parents, [-1, 0, 3, 2], "received a cycle: node 2 never comes to the root, expected a way to it from e"),
        (from_parents, [-1, 1], "received a cycle: node 1 never comes to the root"),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused(make, written, message):
    with pytest.raises(TreeError, match=message):
        make(written)
