"""Folders of PARD-2 draft models -> one description; and what is refused, by file and name."""

import json

import pytest
import torch
from transformers import LlamaConfig

from speccompile.drafters.find import find_kind
from speccompile.drafters.pard2.reading import default_taps, ids_of, taps_of
from speccompile.errors import CheckpointError, RecipeError
from tests.heads import random_tensors
from tests.heads.pard2 import pard2
from tests.light.read_heads import read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=4)


@pytest.fixture
def read(tmp_path):
    def read(hidden_size=64, taps=(), switches=None, **form):
        folder = tmp_path / "head"
        if not folder.exists():
            pard2(folder, TARGET, **form)
        return read_as("pard2", folder, taps, switches, hidden_size=hidden_size)

    return read


def test_a_language_model_and_the_projection_in_its_file(read, tmp_path):
    head = read()
    assert (head.dialect, head.taps, head.tokens) == ("AMD", ("norm.output", "layers.1.input"), None)
    assert head.switches == {"scale": 0.5, "mask_token": 5}
    assert head.tensors["target_proj.weight"].file == "warp_model.bin"
    assert head.tensors["layers.1.mlp.up_proj.weight"].name == "model.layers.1.mlp.up_proj.weight"
    assert [str(file) for file in head.files] == ["config.json", "model.safetensors", "warp_model.bin"]
    assert find_kind(tmp_path / "head") == "pard2"


def test_a_checkpoint_of_its_training_is_the_same(read, tmp_path):
    head = read(checkpoint=True, model_type="qwen3", tied=True, spd_type=None)
    assert head.tensors["target_proj.weight"].file == "model.safetensors"
    assert head.layers.qk_norm
    assert "lm_head.weight" not in head.tensors


def test_hidden_states_are_counted_as_transformers_does():
    """hidden_states of L layers has L + 1 entries: inputs of layers, and what the final norm returns."""
    assert taps_of([0, 3, 4, -1, -2, -5], 4, "") == (
        "layers.0.input", "layers.3.input", "norm.output", "norm.output", "layers.3.input", "layers.0.input",
    )  # fmt: skip
    assert default_taps(36) == ("norm.output", "layers.29.input", "layers.21.input", "layers.13.input")
    assert default_taps(36) == taps_of([-1, -8, -16, -24], 36, "")
    assert taps_of(ids_of(default_taps(5)), 5, "") == default_taps(5)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"pard2_target_layers": None}, r"pard2_target_layers: received nothing, expected ids of the target's hidden"),
        ({"pard2_target_layers": [-1, 5]}, r"pard2_target_layers: received layer id 5, expected ids from 0 to 4"),
        ({"pard2_target_layers": [-1, -6]}, r"pard2_target_layers: received \[-1, -6\], expected a list of whole"),
        ({"pard2_target_layers": [-1]}, r"reads features of width 128, expected 64: 1 taps of the target's hidden"),
        ({"pard2_target_dim": 64}, r"pard2_target_dim: received 64, expected 128: 2 taps of width 64"),
        ({"pard_token": 96}, r"pard_token: received 96, expected a token from 0 to 95"),
        ({"model_type": "gemma"}, r"model_type: received 'gemma', expected one of llama, qwen2, qwen3"),
        ({"pard2_gate": True}, r"received the unknown switch pard2_gate: True"),
        ({"bias": True, "pard2_proj_bias": False}, r"received the tensor 'target_proj.bias', which nothing of this"),
        ({"pard2_proj_bias": True}, r"received no tensor 'target_proj.bias'"),
        ({"tied": True, "tie_word_embeddings": False}, r"received no tensor 'lm_head.weight'"),
    ],
)
def test_what_does_not_fit_together_is_refused(read, form, message):
    with pytest.raises((CheckpointError, RecipeError), match=message):
        read(**form)


def test_without_its_projection_it_is_refused(read, tmp_path):
    pard2(tmp_path / "head", TARGET)
    (tmp_path / "head" / "warp_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"received no tensor 'target_proj.weight' in model.safetensors"):
        read()


def test_a_dialect_with_two_layouts_is_named_once(read, tmp_path):
    pard2(tmp_path / "head", TARGET)
    (tmp_path / "head" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"in one of its dialects \(AMD\)"):
        read()


def test_a_projection_for_wider_features_is_refused(read, tmp_path):
    pard2(tmp_path / "head", TARGET)
    torch.save(random_tensors({"target_proj.weight": (32, 192)}), tmp_path / "head" / "warp_model.bin")
    with pytest.raises(RecipeError, match="reads features of width 192, expected 128: 2 taps"):
        read()


def test_the_recipe_may_say_otherwise(read):
    head = read(taps=("norm.output", "layers.2.input"), switches={"scale": 1.0, "mask_token": 3})
    assert head.taps == ("norm.output", "layers.2.input")
    assert head.switches == {"scale": 1.0, "mask_token": 3}


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"mask_token": 96}, "expected a token from 0 to 95"),
        ({"gate": 1.0}, "an unknown switch, expected one of scale"),
    ],
)
def test_switches_that_do_not_exist_are_refused(read, switches, message):
    with pytest.raises(RecipeError, match=message):
        read(switches=switches)


def test_a_model_of_another_target_is_refused(read):
    with pytest.raises(RecipeError, match=r"reads features of width 128, expected 64: 2 taps of the target's .* 32"):
        read(hidden_size=32)


def test_older_names_of_its_keys(read, tmp_path):
    read()
    path = tmp_path / "head" / "config.json"
    words = json.loads(path.read_text())
    old = {"pard2_scale": "feat_scale", "pard2_target_dim": "pard_target_dim", "pard2_proj_bias": "proj_bias"}
    path.write_text(json.dumps({old.get(key, key): value for key, value in words.items()} | {"feat_scale": 0.25}))
    assert read().switches["scale"] == 0.25
