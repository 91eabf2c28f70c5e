"""Recipe -> the tree of drafts: its five forms, its limits, and sampled drafts."""

import pytest
from transformers import LlamaConfig

from speccompile.errors import RecipeError
from speccompile.recipe import TreePlan, load_recipe, make_plan
from speccompile.tree import EAGLE_25, MEDUSA_63
from tests.heads import dflash as heads

MODEL = {"kind": "model", "model": "drafter"}


def drafter(path, *overrides):
    return make_plan(load_recipe(path, overrides)).drafter


@pytest.fixture
def refusal(make_recipe):
    """Plan a drafter with these keys, refused: its message and its hint."""

    def refusal(*overrides, **keys):
        with pytest.raises(RecipeError) as caught:
            drafter(make_recipe(drafter=MODEL | keys), *overrides)
        return str(caught.value), caught.value.hint

    return refusal


@pytest.mark.parametrize(
    ("written", "parents", "depth"),
    [
        ([2, 1], (-1, 0, 0, 1, 2), 2),
        ([[1], [0, 0], [0]], (-1, 0, 0, 1), 2),
        ({"parents": [1, -1, 1, 0]}, (-1, 0, 0, 1), 2),
    ],
)
def test_a_static_tree_in_every_form(make_recipe, written, parents, depth):
    decided = drafter(make_recipe(drafter=MODEL | {"tree": written}))
    assert (decided.tokens, decided.tree) == (len(parents) - 1, TreePlan("static", parents, depth))


def test_named_trees(make_recipe, make_checkpoint, tmp_path):
    for name in ("large", "draft"):
        make_checkpoint(tmp_path / name, vocab_size=64, words=None)
    for name, tree in (("medusa-63", MEDUSA_63), ("eagle-25", EAGLE_25)):
        path = make_recipe(target={"model": "large"}, drafter={"kind": "model", "model": "draft", "tree": name})
        decided = drafter(path)
        assert (decided.tokens, decided.tree) == (tree.drafts, TreePlan("static", tree.parents, tree.depth))


@pytest.mark.parametrize(
    "keys",
    [{"tokens": 3}, {"tree": "chain", "tokens": 3}, {"tree": [1, 1, 1]}, {"tree": [[0], [0, 0], [0, 0, 0]]},
     {"tree": {"parents": [-1, 0, 1, 2]}}],
)  # fmt: skip
def test_one_branch_is_a_chain(make_recipe, keys):
    decided = drafter(make_recipe(drafter=MODEL | keys))
    assert (decided.tokens, decided.tree) == (3, TreePlan("chain", (-1, 0, 1, 2), 3))


def test_a_dynamic_tree(make_recipe):
    decided = drafter(make_recipe(drafter=MODEL | {"tree": {"depth": 3, "top_k": 2, "nodes": 10}}))
    assert (decided.tokens, decided.tree) == (10, TreePlan("dynamic", None, 3, 2))


def test_the_largest_trees(make_recipe):
    assert drafter(make_recipe(drafter=MODEL | {"tree": [1] * 16})).tree.depth == 16
    assert drafter(make_recipe(drafter=MODEL | {"tree": [7, *[1] * 15]})).tokens == 112
    assert (
        drafter(make_recipe(drafter=MODEL | {"tree": {"parents": [-1, *(i // 8 for i in range(127))]}})).tokens == 127
    )
    assert drafter(make_recipe(drafter=MODEL | {"tree": {"depth": 16, "top_k": 8, "nodes": 127}})).tokens == 127


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([8, 8, 8], "drafter.tree: received more nodes than the window holds: 584 drafts, expected at most 127"),
        ([100_000] * 16, "drafts, expected at most 127"),
        (
            [[rank] for rank in range(128)],
            "received more nodes than the window holds: 128 drafts, expected at most 127",
        ),
        ({"parents": [-1] + [0] * 128}, "received more nodes than the window holds: 128 drafts, expected at most 127"),
        ([1] * 17, "drafter.tree: received a tree of depth 17, expected at most 16"),
        ([[0] * depth for depth in range(1, 18)], "drafter.tree: received a tree of depth 17, expected at most 16"),
        ({"parents": list(range(-1, 17))}, "drafter.tree: received a tree of depth 17, expected at most 16"),
        ([], "drafter.tree: received no branching factor, expected one from 1 on for every depth"),
        ([2, 0], "drafter.tree: received a branching factor of 0, expected one from 1 on for every depth"),
        ([[]], "drafter.tree: received an empty path or no path, expected paths of one rank or more"),
        ([[0], [1, 0]], "drafter.tree: received the path [1, 0] without [1], expected its parent as well"),
        ({"parents": []}, "drafter.tree: received 0 roots, expected one node whose parent is -1"),
        ({"parents": [-1]}, "drafter.tree: received a root without drafts, expected one node or more below it"),
        ({"parents": [-1, -1]}, "drafter.tree: received 2 roots, expected one node whose parent is -1"),
        ({"parents": [-1, 2, 1]}, "drafter.tree: received a cycle: node 1 never comes to the root"),
        ({"parents": [-1, 7]}, "drafter.tree: received node 1 with parent 7, expected one of the nodes 0 to 1"),
        ({"parents": [-1, 0], "nodes": 3}, "drafter.tree.nodes: received 3 beside drafter.tree.parents, expected eit"),
        ({}, "drafter.tree.depth: received nothing, expected it beside the other keys of a dynamic tree"),
        ({"depth": 3, "top_k": 2}, "drafter.tree.nodes: received nothing, expected it beside the other keys of a dyn"),
        ({"depth": 3, "nodes": 3}, "drafter.tree.top_k: received nothing, expected it beside the other keys of a dyn"),
        ({"depth": 3, "top_k": 2, "nodes": 11}, "drafter.tree.nodes: received 11, expected a number from 3, the dept"),
        ({"depth": 3, "top_k": 2, "nodes": 2}, "drafter.tree.nodes: received 2, expected a number from 3, the depth,"),
        ({"depth": 2, "top_k": 9, "nodes": 9}, "drafter.tree.top_k: received a node with 9 children, expected at mo"),
        ([9], "drafter.tree: received a node with 9 children, expected at most 8, the tokens of the vocabulary"),
        (
            {"kind": "blocks", "nodes": 8},
            "drafter.tree.kind: received blocks, expected a tree of another form: drafter",
        ),
        ({"parents": [-1, 0], "kind": "blocks"}, "drafter.tree.kind: received blocks beside drafter.tree.parents"),
        ("medusa-64", "drafter.tree: received 'medusa-64', which is unknown, expected chain, medusa-63 or eagle-25"),
        ("x", "drafter.tree: received 'x', which is unknown, expected chain, medusa-63 or eagle-25"),
    ],
)
def test_trees_that_are_refused(refusal, tree, message):
    received, hint = refusal(tree=tree)
    assert message in received
    assert hint


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"nodes": 8, "top_k": 2}, "drafter.tree.top_k: received 2, expected kind, nodes and maybe depth"),
        ({"depth": 2}, "drafter.tree.nodes: received nothing, expected the number of nodes beside kind"),
        ({"depth": 5, "nodes": 4}, "drafter.tree.depth: received 5, expected at most 4, the number of nodes"),
    ],
)
def test_trees_of_the_best_nodes_that_are_refused(refusal, tree, message):
    assert message in refusal(kind="dspark", tree={"kind": "blocks"} | tree)[0]


def test_a_tree_of_the_best_nodes_is_as_deep_as_its_head(make_recipe, make_checkpoint, tmp_path):
    target = LlamaConfig(vocab_size=12, hidden_size=64, num_hidden_layers=4)
    make_checkpoint(tmp_path / "large", num_hidden_layers=4, hidden_size=64, vocab_size=12)
    head = heads.deepspec(tmp_path / "head", target, markov=heads.MARKOV)

    def made(**keys):
        recipe = {"target": {"model": "large"}, "drafter": {"kind": "dspark", "model": str(head)} | keys}
        return drafter(make_recipe(**recipe))

    decided = made(tree={"kind": "blocks", "nodes": 8})
    assert (decided.tokens, decided.tree) == (8, TreePlan("dynamic", None, heads.BLOCK))
    assert made(tree={"kind": "blocks", "nodes": 8, "depth": 2}).tree.depth == 2
    for keys, message in (
        (
            {"tree": {"kind": "blocks", "nodes": 8, "depth": 6}},
            "received 6 drafts after one another, expected at most 5",
        ),
        ({"tree": {"kind": "blocks", "nodes": 13}}, "drafter.tree.nodes: received 13, expected at most 12, the tokens"),
        ({"tree": {"kind": "blocks", "nodes": 8}, "threshold": 0.5}, "drafter.threshold: received 0.5, expected none"),
    ):
        with pytest.raises(RecipeError, match=message):
            made(**keys)


def test_a_misspelled_tree_gets_a_hint(refusal):
    assert refusal(tree="medusa-64")[1] == "did you mean 'medusa-63'?"
    assert refusal(tree="x")[1] == "or write a tree of your own, for example `tree: [4, 2, 1]`"


def test_a_tree_says_itself_how_many_drafts_there_are(refusal):
    message, hint = refusal(tree=[1, 1], tokens=2)
    assert "drafter.tokens: received 2, expected nothing beside a tree, which says itself" in message
    assert hint == "remove drafter.tokens (or set it to null), or set drafter.tree to chain"


def test_a_tree_on_the_command_line(make_recipe):
    overrides = ("drafter.tree.depth=2", "drafter.tree.top_k=2", "drafter.tree.nodes=4")
    assert drafter(make_recipe(drafter=MODEL), *overrides).tree == TreePlan("dynamic", None, 2, 2)
    assert drafter(make_recipe(drafter=MODEL), "drafter.tree=[2]").tokens == 2


@pytest.mark.parametrize(
    ("keys", "decoding", "sample"),
    [
        ({}, "greedy", False),
        ({}, "sampling", True),
        ({"sample": False}, "sampling", False),
        ({"sample": False}, "greedy", False),
        ({"sample": True}, "sampling", True),
        ({"tree": [2]}, "sampling", True),
        ({"tree": {"depth": 1, "top_k": 2, "nodes": 2}}, "sampling", False),
        ({"model": None, "kind": "prompt_lookup"}, "sampling", False),
        ({"model": None, "kind": "layer_skip", "layers": [0]}, "sampling", True),
        ({"model": None, "kind": "none"}, "sampling", False),
    ],
)
def test_drafts_are_drawn_where_they_can_be(make_recipe, make_checkpoint, tmp_path, keys, decoding, sample):
    make_checkpoint(tmp_path / "deep", num_hidden_layers=2)
    assert drafter(make_recipe(target={"model": "deep"}, drafter=MODEL | keys, decoding=decoding)).sample is sample


def test_sampled_drafts_of_a_greedy_bundle_are_refused(refusal):
    message, hint = refusal(sample=True)
    assert message.endswith("drafter.sample: received true, which decoding greedy cannot do, expected false")
    assert hint == "set decoding to sampling, or drafter.sample to false"


def test_more_children_than_candidates_cannot_be_drawn(make_recipe, make_checkpoint, tmp_path):
    for name in ("large", "draft"):
        make_checkpoint(tmp_path / name, vocab_size=100, words=None)
    keys = {"kind": "model", "model": "draft", "tree": [65]}
    path = make_recipe(target={"model": "large"}, drafter=keys)
    assert drafter(path).tokens == 65
    with pytest.raises(
        RecipeError, match="node with 65 children, expected at most 64, among which a sampled"
    ) as caught:
        drafter(path, "decoding=sampling")
    assert caught.value.hint == "set drafter.sample to false"
    assert not drafter(path, "decoding=sampling", "drafter.sample=false").sample
