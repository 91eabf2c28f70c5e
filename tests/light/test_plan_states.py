"""What models that carry states from token to token cannot do is refused in the plan, by name."""

import json
from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING

from speccompile.compiler.checkpoints.states import KINDS, MODEL_TYPES, recurrent_layers
from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan
from tests import zoo

HYBRID = {"layer_types": ["full_attention", "linear_attention"]}
CARRIES = "carries states from token to token (layer 1 is of type linear_attention)"


@pytest.fixture
def plan(make_recipe, make_checkpoint, tmp_path):
    """Plan a recipe beside the checkpoints `target`, `drafter`, and `hybrid`, which carries states."""
    make_checkpoint(tmp_path / "hybrid", num_hidden_layers=2, **HYBRID)

    def plan(drafter, target="hybrid", **keys):
        return make_plan(load_recipe(make_recipe(**{"target": {"model": target}, "drafter": drafter} | keys)))

    return plan


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.fixture
def refusal(plan):
    def refusal(*arguments, **keys):
        with pytest.raises(RecipeError) as caught:
            plan(*arguments, **keys)
        assert caught.value.hint
        return str(caught.value), caught.value.hint

    return refusal


def test_a_tree_of_a_target_that_carries_states(plan, refusal):
    drafter, tree = {"kind": "model", "model": "drafter"}, {"depth": 2, "top_k": 2, "nodes": 4}
    assert plan(drafter | {"tree": tree}).drafter.tree.kind == "dynamic"
    assert plan(drafter | {"tree": [1, 1]}).drafter.tree.kind == "chain"
    assert plan(drafter | {"tree": [2, 1]}).drafter.tree.kind == "static"
    assert plan(drafter | {"tree": tree}, target="target").drafter.tree.kind != "chain"
    message, _ = refusal({"kind": "layer_skip", "layers": [0], "tree": [2, 1]})
    assert "drafter.tree: received a tree of drafter.kind layer_skip, whose drafts move on the same states" in message


@pytest.mark.parametrize(
    ("drafter", "key"),
    [
        ({"kind": "models", "models": ["drafter", "drafter"]}, "drafter.kind"),
        ({"kind": "lookahead"}, "drafter.kind"),
    ],
    ids=lambda each: each["kind"] if isinstance(each, dict) else each,
)
def test_kinds_whose_draft_tokens_are_no_tree_of_one_drafter(refusal, drafter, key):
    message, _ = refusal(drafter)
    assert message.endswith(
        f"{key}: received draft tokens that are no tree of one drafter, but the target 'hybrid' {CARRIES}, expected "
        "a tree of one drafter, such as drafter.tree [2, 2], or a chain, in which each token follows one"
    )


@pytest.mark.parametrize("keys", [{"top_k": 4}, {"nodes": 12}], ids=str)
def test_a_constant_tree_of_a_kind(plan, keys):
    assert plan({"kind": "token_recycling"} | keys).drafter.tree.kind == "static"


def test_a_tree_of_a_drafter_that_carries_states(plan, refusal, tmp_path):
    drafter = {"kind": "model", "model": "hybrid"}
    message, _ = refusal(drafter | {"tree": [2, 1]}, target="target")
    assert f"drafter.tree: received a tree, but the drafter 'hybrid' {CARRIES}" in message
    message, hint = refusal(drafter | {"drafter": {"kind": "prompt_lookup"}}, target="target")
    assert "received prompt_lookup, whose draft tokens the drafter would take back, but the dr" in message
    assert hint == "remove drafter.drafter"
    assert plan(drafter, target="target").drafter.models[0].facts.states == "layer 1 is of type linear_attention"
    several = {"kind": "models", "models": ["hybrid", "drafter"]}
    assert plan(several, target="target").drafter.tokens == 8
    change = {"pard_token": 3}
    (tmp_path / "hybrid" / "config.json").write_text(json.dumps(config_of(tmp_path / "hybrid") | change))
    message, hint = refusal(drafter | {"kind": "pard"}, target="target")
    assert "drafter.kind: received 'pard', whose mask tokens follow padding, but the drafter 'hybrid'" in message
    assert hint == "set drafter.kind to model, or take another drafter"


def test_rounds_of_a_target_that_carries_states_are_two_graphs(plan):
    drafter = {"kind": "layer_skip", "layers": [0]}
    assert plan(drafter).graphs == "separate"
    assert plan(drafter, graphs="fused").graphs == "fused"
    assert plan({"kind": "prompt_lookup"}, target="target", graphs="fused").graphs == "fused"


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_families_are_transformers_own(model_type):
    assert model_type in CONFIG_MAPPING


@pytest.mark.parametrize("name", zoo.ROWS)
def test_the_config_tells_what_the_probe_finds(name, tmp_path: Path):
    """config.json names the layers, or transformers' classes derive them from it."""
    configuration = zoo.config(name)
    configuration.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    listed = getattr(configuration, "layer_types", None) or ()
    carries = any(kind in KINDS for kind in listed) or name in ("falcon_mamba", "mamba", "mamba2")
    assert (recurrent_layers(written) is not None) == carries
