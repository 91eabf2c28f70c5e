"""Recipe -> Token Recycling: its tree, pruned, and what does not go together."""

from collections import Counter

import pytest

from speccompile.drafters.token_recycling.nodes import HITS, NODES, TEMPLATE, best_first
from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan
from speccompile.tree import TreeError

KIND = {"kind": "token_recycling"}


def drafter(path):
    return make_plan(load_recipe(path, ())).drafter


@pytest.fixture
def large(make_recipe, make_checkpoint, tmp_path):
    """Return a recipe for a target with more tokens than the ranks that are asked for."""
    make_checkpoint(tmp_path / "large", vocab_size=64, words=None)
    return lambda **keys: make_recipe(target={"model": "large"}, drafter=KIND | keys)


def test_the_template_is_the_published_one():
    """Nodes a depth, and its deepest paths, as the paper's code has them (2.2.2)."""
    assert Counter(TEMPLATE.depths) == {0: 1, 1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3}
    deepest = [path for path in TEMPLATE.paths() if len(path) >= 5]
    assert deepest == [
        [0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 2], [0, 0, 0, 1, 0], [0, 0, 0, 2, 0], [0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0], [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0],
    ]  # fmt: skip


@pytest.mark.parametrize("nodes", range(8, 81))
def test_pruning_keeps_the_best_nodes(nodes):
    """Keep nodes whose hit rate is at least that of every dropped node, and their parents."""
    kept = best_first(nodes, 8)
    paths = {tuple(path) for path in kept.paths()}
    assert len(paths) == kept.drafts == nodes

    def chance(path):
        return HITS[path[0]] * chance(path[1:]) if path else 1.0  # rounded otherwise than in the code

    worst = min(map(chance, paths))
    assert all(chance(path) <= worst * (1 + 1e-9) for path in map(tuple, TEMPLATE.paths()) if path not in paths)
    assert all(path[:-1] in paths | {()} for path in paths)
    assert nodes < 80 or kept == TEMPLATE


def test_fewer_ranks_make_fewer_nodes():
    assert max(best_first(28, 2).ranks) == 1
    message = "received 29 nodes where the 2 best tokens behind each are known, expected at most 28"
    with pytest.raises(TreeError, match=message):
        best_first(29, 2)


def test_what_is_decided(large):
    decided = drafter(large())
    assert (decided.tokens, decided.successors, decided.sample) == (NODES, 8, False)
    assert decided.tree.parents == best_first(NODES, 8).parents
    decided = drafter(large(nodes=80, top_k=9))
    assert (decided.tokens, decided.tree.depth, decided.successors) == (80, 6, 9)
    decided = drafter(large(tree=[3, 2], top_k=3))
    assert (decided.tokens, decided.tree.kind, decided.successors) == (9, "static", 3)
    decided = drafter(large(tokens=5))
    assert (decided.tokens, decided.tree.kind, decided.tree.depth) == (5, "chain", 5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"nodes": 7}, "drafter.nodes: received 7, expected a whole number from 8 to 80"),
        ({"nodes": 81}, "drafter.nodes: received 81, expected a whole number from 8 to 80"),
        ({"top_k": 0}, "drafter.top_k: received 0, expected a whole number from 1 to 64"),
        ({"top_k": 1}, "drafter.top_k: received 8 nodes where the 1 best tokens behind each are known, expected at mo"),
        ({"nodes": 40, "top_k": 2}, "drafter.nodes: received 40 nodes where the 2 best tokens behind each are known"),
        ({"nodes": 8, "tree": [2]}, "drafter.nodes: received 8, expected nothing beside drafter.tree, which says"),
        ({"nodes": 8, "tokens": 2}, "drafter.nodes: received 8, expected nothing beside drafter.tokens, which says"),
        ({"tokens": 4, "tree": [2]}, "drafter.tokens: received 4, expected nothing beside a tree"),
        ({"tree": [9]}, "drafter.tree: received a node with 9 children, expected at most 8, which is drafter.top_k"),
        ({"tree": [3], "top_k": 2}, "drafter.tree: received a node with 3 children, expected at most 2, which is"),
        ({"tree": {"depth": 2, "top_k": 2, "nodes": 3}}, "drafter.tree: received a dynamic tree, which drafter.kind"),
        ({"sample": False}, "drafter.sample: received a key that means nothing for this drafter"),
        ({"ngram": 2}, "drafter.ngram: received a key that means nothing for this drafter"),
    ],
)
def test_what_is_refused(large, keys, message):
    with pytest.raises(RecipeError) as caught:
        drafter(large(**keys))
    assert message in str(caught.value)
    assert caught.value.hint


def test_a_target_with_fewer_tokens_than_ranks_is_refused(make_recipe):
    with pytest.raises(
        RecipeError, match=r"drafter.top_k: received 9, expected at most 8, the tokens of the vocabulary"
    ):
        drafter(make_recipe(drafter=KIND | {"top_k": 9}))


@pytest.mark.parametrize("key", ["nodes", "top_k"])
def test_its_keys_mean_nothing_elsewhere(make_recipe, key):
    with pytest.raises(
        RecipeError, match=rf"drafter.{key}: .* only with drafter.kind token_recycling, not prompt_look"
    ):
        drafter(make_recipe(drafter={"kind": "prompt_lookup", key: 8}))
