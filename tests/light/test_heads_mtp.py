"""MTP layers among a target's tensors, in every layout: found, counted and refused without torch's help."""

import json

import pytest
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from speccompile.drafters.find import find_kind
from speccompile.errors import CheckpointError, RecipeError
from speccompile.recipe import load_recipe, make_plan
from tests.heads.mtp import LAYERS, TARGETS, mtp_head, mtp_target

LAYOUTS = {
    "glm4_moe": "DeepSeek", "deepseek_v3": "DeepSeek", "hy_v3": "DeepSeek", "mimo": "MiMo", "mimo_v2": "MiMo V2",
    "ernie": "ERNIE 4.5", "qwen3_next": "Qwen 3.5", "qwen3_5": "Qwen 3.5", "qwen3": "Qwen 3.5", "mellum": "Qwen 3.5",
    "exaone_moe": "Qwen 3.5",
}  # fmt: skip
RECURRENT = ("qwen3_next", "qwen3_5")
"""Targets that carry states, which a graph that drafts as it verifies would be given twice."""


@pytest.fixture
def plan(tmp_path):
    def plan(**drafter):
        drafter = {"kind": "mtp"} | drafter
        (tmp_path / "recipe.yaml").write_text(
            json.dumps({"name": "t", "target": {"model": "target"}, "drafter": drafter})
        )
        return make_plan(load_recipe(tmp_path))

    return plan


def change(folder, **keys):
    """Write the config with other values, None for keys that it lacks."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def keep(folder, keeps):
    """Write the weights whose names are kept."""
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if keeps(name)}, folder / "model.safetensors")


@pytest.mark.parametrize("name", TARGETS)
def test_every_layout_is_found_in_the_target(tmp_path, plan, name):
    mtp_target(tmp_path / "target", name)
    found = plan(tokens=2)
    head = found.drafter.head
    assert (head.dialect, head.folder, head.reference) == (LAYOUTS[name], tmp_path / "target", "target")
    assert head.taps == ("norm.output",)
    assert head.switches["hidden_first"] is (name == "mimo")
    layers = {ours.split(".")[0] for ours in head.tensors if ours[0].isdecimal()}
    graphs = "separate" if name in RECURRENT else "fused"
    assert (layers, found.drafter.tokens, found.graphs) == ({"0"}, 2, graphs)
    assert not any(f"layers.{LAYERS - 1}." in source.name for source in head.tensors.values())
    assert find_kind(tmp_path / "target") == "model"


def test_as_many_drafts_as_layers_unless_the_recipe_says(tmp_path, plan):
    mtp_target(tmp_path / "target", "glm4_moe", 3)
    assert plan().drafter.tokens == 3
    assert plan(tokens=5).drafter.tokens == 5


def test_a_folder_of_their_own_is_found_and_taken(tmp_path, plan):
    target = LlamaConfig(vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4)
    mtp_head(tmp_path / "head", target)
    mtp_target(tmp_path / "target", "qwen3", vocab_size=8, hidden_size=16)
    assert find_kind(tmp_path / "head") == "mtp"
    head = plan(model="head").drafter.head
    assert (head.dialect, head.folder, plan(model="head").drafter.tokens) == ("speculators", tmp_path / "head", 3)
    assert plan().drafter.head.folder == tmp_path / "target"


@pytest.mark.parametrize("said", [1, None])
def test_a_checkpoint_without_mtp_layers_is_refused(tmp_path, plan, said):
    mtp_target(tmp_path / "target", "glm4_moe")
    keep(tmp_path / "target", lambda name: f"layers.{LAYERS}." not in name)
    change(tmp_path / "target", num_nextn_predict_layers=said)
    with pytest.raises(CheckpointError, match="received weights without MTP layers") as caught:
        plan()
    assert ("config.json says num_nextn_predict_layers: 1" in str(caught.value)) is (said == 1)
    assert "drafter.kind to another drafter" in caught.value.hint


@pytest.mark.parametrize("said", [0, 2, "one"])
@pytest.mark.parametrize("name", ["glm4_moe", "qwen3_5"])
def test_a_config_that_lies_is_refused(tmp_path, plan, name, said):
    mtp_target(tmp_path / "target", name)
    key = TARGETS[name].count
    change(tmp_path / "target", **{key: said})
    with pytest.raises(CheckpointError, match=rf"{key}: received {said!r}, expected 1, as many MTP layers"):
        plan()


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("enorm.weight", r"MTP layer 0 without its enorm.weight .* expected one of shape \[64\]"),
        ("shared_head.norm.weight", "MTP layer 0 without its norm.weight in the layout DeepSeek"),
    ],
)
def test_a_part_that_is_missing_is_named(tmp_path, plan, lost, message):
    mtp_target(tmp_path / "target", "glm4_moe")
    keep(tmp_path / "target", lambda name: not name.endswith(lost))
    with pytest.raises(CheckpointError, match=message):
        plan()


def test_a_layer_that_is_missing_in_between_is_named(tmp_path, plan):
    mtp_target(tmp_path / "target", "mimo", 3)
    keep(tmp_path / "target", lambda name: "mtp_layers.1." not in name)
    with pytest.raises(CheckpointError, match="no tensor of the decoder layer of MTP layer 1"):
        plan()


def test_layers_of_another_target_are_refused(tmp_path, plan):
    target = LlamaConfig(vocab_size=8, hidden_size=32, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4)
    mtp_head(tmp_path / "head", target)
    mtp_target(tmp_path / "target", "qwen3")
    with pytest.raises(RecipeError, match="a head for a target with a hidden size of 32"):
        plan(model="head")


def test_a_revision_without_a_model_is_refused(tmp_path, plan):
    mtp_target(tmp_path / "target", "qwen3")
    with pytest.raises(
        RecipeError, match=r"drafter\.revision: received 'main', expected no revision without drafter\.mod"
    ):
        plan(revision="main")


def test_a_matrix_of_another_width_is_refused(tmp_path, plan):
    mtp_target(tmp_path / "target", "qwen3")
    tensors = load_file(tmp_path / "target" / "model.safetensors")
    tensors["mtp.fc.weight"] = tensors["mtp.fc.weight"][:, :64].contiguous()
    save_file(tensors, tmp_path / "target" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor 'mtp.fc.weight' of shape \[64, 64\], expected \[64, 128\]"):
        plan()
