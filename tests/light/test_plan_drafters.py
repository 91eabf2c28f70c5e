"""Recipe -> drafters of several models, and of the target's own layers."""

import pytest

from speccompile.plan.layers import LayersPlan
from speccompile.recipe import TreePlan, load_recipe, make_plan

TWO = {"kind": "models", "models": ["drafter", {"model": "other"}]}
LAYERS = {"kind": "layer_skip", "layers": [0, 2]}
RTX = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}


@pytest.fixture
def plan(make_recipe, make_checkpoint, tmp_path):
    """Plan a recipe for a target of four layers, with the checkpoints `drafter` and `other` beside it."""
    make_checkpoint(tmp_path / "deep", num_hidden_layers=4)
    make_checkpoint(tmp_path / "other")

    def plan(drafter, *overrides, **keys):
        path = make_recipe(**{"target": {"model": "deep"}, "drafter": drafter} | keys)
        return make_plan(load_recipe(path, overrides))

    return plan


def test_several_models_draft_one_tree_each(plan):
    decided = plan(TWO | {"tree": [2, 1]})
    assert [model.reference for model in decided.drafter.models] == ["drafter", "other"]
    assert decided.drafter.tree == TreePlan("static", (-1, 0, 0, 1, 2), 2)
    assert (decided.drafter.tokens, decided.drafter.sample) == (8, False)
    chains = plan(TWO | {"tokens": 3}).drafter
    assert (chains.tokens, chains.tree) == (6, TreePlan("chain", (-1, 0, 1, 2), 3))
    assert plan(TWO, precision={"drafter": "int8"}).drafter.models[1].precision == "int8"
    assert plan(TWO, precision={"drafter": "int8"}).engines[0].precision.drafter == "int8"


def test_the_positions_and_tokens_of_every_model_count(plan, refusal, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "short", max_position_embeddings=32)
    make_checkpoint(tmp_path / "wide", vocab_size=9, words=None)
    models = {"kind": "models", "models": ["drafter", "short"]}
    assert plan(models).max_length == 32
    message = refusal(models, cache={"max_length": 33})
    assert message.endswith("max_length: received 33, expected at most 32, the positions of the drafter 'short'")
    message = refusal({"kind": "models", "models": ["drafter", "wide"]})
    assert "drafter.models.1: received a drafter with a vocabulary of 9 tokens, expected the target's" in message


def test_notes_say_which_model_they_mean(plan, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "mute", words=None)
    note = "no tokenizer.json in drafter: only the sizes of the vocabularies were compared"
    assert plan({"kind": "models", "models": ["drafter", "mute"]}).notes == (f"drafter.models.1: {note}",)
    assert plan({"kind": "model", "model": "mute"}).notes == (note,)


def test_which_model_is_wrong_on_the_command_line(refusal):
    message = refusal(TWO, "drafter.models.1=./gone")
    assert message.startswith("--set drafter.models.1.model: received './gone' (nothing lies at")


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ({"kind": "models"}, "drafter.models: received nothing, expected the models that drafter.kind models drafts "),
        ({"kind": "models", "models": ["drafter"]}, "drafter.models: received 1 of them, expected two models or more"),
        ({"kind": "models", "models": []}, "drafter.models: received 0 of them, expected two models or more"),
        (TWO | {"models": ["drafter", "./gone"]}, "drafter.models.1.model: received './gone' (nothing lies at"),
        (TWO | {"models": [{"model": "drafter", "revision": "a"}, "other"]}, "drafter.models.0.revision: received 'a'"),
        (TWO | {"model": "drafter"}, "drafter.model: received a key that means nothing for this drafter, expected "),
        (TWO | {"sample": False}, "drafter.sample: received a key that means nothing for this drafter, expected it on"),
        (TWO | {"models": ["drafter"] * 8, "tokens": 16}, "drafter.models: received more nodes than the window holds: "
         "128 drafts (8 models with 16 each), expected at most 127"),
        (TWO | {"tree": [4, 4, 3]}, "drafter.tree: received more nodes than the window holds: 136 drafts (2 models wi"),
        (TWO | {"tree": {"depth": 2, "top_k": 2, "nodes": 4}}, "drafter.tree: received a dynamic tree, which drafter."),
        ({"kind": "layer_skip"}, "drafter.layers: received nothing, expected the layers of the target that drafter.ki"),
        (LAYERS | {"layers": []}, "drafter.layers: received [], expected one layer or more"),
        (LAYERS | {"layers": [0, 4]}, "drafter.layers: received layer 4, expected layers from 0 to 3, which the targe"),
        (LAYERS | {"layers": [0, 0]}, "drafter.layers: received layer 0 twice, expected each layer once, in ascending"),
        (LAYERS | {"layers": [2, 0]}, "drafter.layers: received layer 0 after layer 2, expected each layer once, in a"),
        (LAYERS | {"layers": {}}, "drafter.layers: received neither attention nor mlp, expected one layer or more"),
        (LAYERS | {"layers": {"attention": [], "mlp": []}}, "drafter.layers: received neither attention nor mlp, expe"),
        (LAYERS | {"layers": {"attention": [0, 4]}}, "drafter.layers.attention: received layer 4, expected layers fro"),
        (LAYERS | {"layers": {"attention": [0], "mlp": [5]}}, "drafter.layers.mlp: received layer 5, expected layers "),
        (LAYERS | {"layers": {"mlp": [1, 1]}}, "drafter.layers.mlp: received layer 1 twice, expected each layer once,"),
        (LAYERS | {"layers": {"attention": [3, 1]}}, "drafter.layers.attention: received layer 1 after layer 3, expec"),
        (LAYERS | {"layers": {"attn": [0]}}, "drafter.layers.attn: received an unknown key, expected one of attention"),
        (LAYERS | {"layers": {"mlp": [-1]}}, "drafter.layers.mlp.0: received -1, expected a list of layers, counted f"),
        (LAYERS | {"layers": {"mlp": "0"}}, "drafter.layers.mlp: received '0', expected a list of layers, counted fr"),
        (LAYERS | {"layers": 2}, "drafter.layers: received 2, expected a list of layers, counted from 0, or {attentio"),
        (LAYERS | {"layers": [0, True]}, "drafter.layers.1: received true, expected a list of layers, counted from 0,"),
        (LAYERS | {"model": "drafter"}, "drafter.model: received a key that means nothing for this drafter, expected "),
        ({"kind": "none", "layers": [0]}, "expected it only with drafter.kind layer_skip, not none"),
    ],
)  # fmt: skip
def test_drafters_that_are_refused(refusal, drafter, message):
    assert message in refusal(drafter)


def test_layers_of_the_target_draft_in_one_graph_with_it(plan):
    decided = plan(LAYERS)
    both = LayersPlan((0, 2), (0, 2))
    assert (decided.drafter.layers, decided.drafter.models, decided.drafter.tokens) == (both, (), 4)
    assert decided.drafter.to_json()["layers"] == [0, 2]
    assert (decided.graphs, decided.notes, decided.target.facts.layers) == ("fused", (), 4)
    assert plan(LAYERS, graphs="separate").graphs == "separate"
    assert plan(LAYERS | {"layers": [3]}).drafter.layers == LayersPlan((3,), (3,))


def test_halves_of_layers_are_named_apart(plan):
    halves = {"attention": [0, 1, 3], "mlp": [0, 2]}
    decided = plan(LAYERS | {"layers": halves}).drafter
    assert decided.layers == LayersPlan((0, 1, 3), (0, 2))
    assert decided.to_json()["layers"] == halves
    assert plan(LAYERS | {"layers": {"mlp": [2]}}).drafter.to_json()["layers"] == {"attention": [], "mlp": [2]}
    equal = plan(LAYERS, 'drafter.layers={"attention": [0, 2], "mlp": [0, 2]}').drafter
    assert equal == plan(LAYERS).drafter
    assert plan(LAYERS, "drafter.layers={attention: [1]}", "drafter.layers.mlp=[0]").drafter.layers.mlp == (0,)


def test_all_layers_are_noted(plan):
    assert plan(LAYERS | {"layers": [0, 1, 2, 3]}).notes == (
        "drafter.layers names all 4 layers: a draft costs as much as a token of the target",
    )


def test_a_target_that_does_not_say_how_many_layers_it_has_has_none_to_skip(refusal):
    message = refusal(LAYERS, target={"model": "target"})
    assert "drafter.layers: received [0, 2], expected a target whose config.json says how many layers it h" in message


@pytest.mark.parametrize("engine", [{}, RTX], ids=["cpu", "rtx"])
def test_layers_have_the_precision_of_their_target(plan, engine):
    word = "float16" if engine else "int8"
    for keys in (
        {"precision": {"target": word}, "engines": [engine]},
        {"precision": {"target": word, "drafter": word}, "engines": [engine]},
        {"engines": [engine | {"precision": {"target": word, "drafter": word}}], "precision": {"drafter": "float32"}},
    ):
        precision = plan(LAYERS, **keys).engines[0].precision
        assert (precision.target, precision.drafter) == (word, word)
    assert plan(LAYERS).engines[0].precision.drafter == "float32"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"precision": {"drafter": "int8"}},
            "precision.drafter: received 'int8', expected 'float32', the target's, be",
        ),
        (
            {"engines": [{"precision": {"target": "int8", "drafter": "float32"}}]},
            "engines.0.precision.drafter: received 'float32', expected 'int8', the target's, because drafter.kind laye",
        ),
        (
            {"engines": [{"precision": {"target": "int8"}}], "precision": {"target": "float32", "drafter": "float32"}},
            "yaml: precision.drafter: received 'float32', expected 'int8', the target's, because drafter.kind layer_sk",
        ),
        (
            {"engines": [RTX], "precision": {"target": "int4"}},
            "yaml: precision.target: received 'int4', which tensorrt_rtx with compute capability 8.9, 12.0 or 12.1 can"
            "not do for drafter.kind layer_skip, which drafts with the target's weights, expected float32, float16",
        ),
        (
            {"engines": [RTX | {"precision": {"target": "int8"}}]},
            "engines.0.precision.target: received 'int8', which tensorrt_rtx with compute capability 8.9, 12.0 or 12.1",
        ),
    ],
)
def test_precisions_that_layers_cannot_have(refusal, keys, message):
    assert message in refusal(LAYERS, **keys)


@pytest.mark.parametrize("drafter", [{"kind": "model", "model": "refused"}, {"kind": "prompt_lookup"}])
def test_a_model_type_that_cannot_be_compiled_is_refused_by_its_name(plan, refusal, make_checkpoint, tmp_path, drafter):
    make_checkpoint(tmp_path / "refused", model_type="falcon")
    target = {} if "model" in drafter else {"target": {"model": "refused"}}
    message = refusal(drafter, **target)
    assert message.startswith(f"{tmp_path}/refused/config.json: model_type: received 'falcon', which cannot be comp")
