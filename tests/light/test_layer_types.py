"""Kinds of layers and of models that nothing can be made of are named when the folder is read."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from transformers.configuration_utils import _LEGACY_LAYER_TYPE_REMAP, ALLOWED_ATTN_LAYER_TYPES

from speccompile.compiler.checkpoints import known_types as known_module
from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.known_types import known_types, language_models
from speccompile.compiler.checkpoints.layer_types import KNOWN, LISTS
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.compiler.checkpoints.refused_types import refuse_type
from speccompile.errors import CheckpointError, UnsupportedModelError


@pytest.mark.parametrize("name", LISTS)
def test_a_kind_of_layer_that_nobody_knows_is_named(tmp_path, make_checkpoint, name):
    kinds = ["linear_attention", "full_attention", "quantum_attention"]
    folder = make_checkpoint(tmp_path / "model", **{name: kinds, "num_hidden_layers": 3})
    with pytest.raises(UnsupportedModelError, match=rf"config\.json: {name}: received 'quantum_attention' for layer 2"):
        read_checkpoint(folder)


def test_kinds_of_layers_are_a_list(tmp_path, make_checkpoint):
    with pytest.raises(CheckpointError, match="layer_types: 'conv', expected a list with the kind of every layer"):
        read_checkpoint(make_checkpoint(tmp_path / "model", layer_types="conv"))


def test_every_kind_of_layer_that_transformers_has_is_known():
    assert set(KNOWN) >= {*ALLOWED_ATTN_LAYER_TYPES, *_LEGACY_LAYER_TYPE_REMAP}


def test_the_decoder_of_an_encoder_decoder_is_not_taken_for_the_model(tmp_path, make_checkpoint):
    folder = make_checkpoint(tmp_path / "model", model_type="led", is_encoder_decoder=True)
    with pytest.raises(UnsupportedModelError, match="received an encoder-decoder model of type 'led', expected a"):
        read_checkpoint(folder)


def test_the_types_that_are_read_in_files_are_those_of_transformers():
    from transformers.models.auto import configuration_auto, modeling_auto

    assert known_types() == set(configuration_auto.CONFIG_MAPPING_NAMES)
    mappings = (getattr(modeling_auto, name) for name in known_module._LANGUAGE_MODELS)
    assert language_models() == {*TYPES}.union(*mappings)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("lllama", "received 'lllama', which this version of transformers does not know"),
        ("vit", "received 'vit', which is no language model in transformers"),
        ("distilbert", "received 'distilbert', which is no language model in transformers"),
    ],
)
def test_what_is_no_language_model_of_transformers_is_refused_first(tmp_path, make_checkpoint, model_type, reason):
    folder = make_checkpoint(tmp_path / "model", model_type=model_type, vocab_size=None)
    with pytest.raises(UnsupportedModelError, match=rf"config\.json: model_type: {reason}"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "name", ["BertForMaskedLM", "LlamaForSequenceClassification", "Qwen2ForRewardModel", "T5EncoderModel"]
)
def test_another_head_than_that_of_the_next_token_is_refused(tmp_path, make_checkpoint, name):
    folder = make_checkpoint(tmp_path / "model", architectures=[name])
    with pytest.raises(UnsupportedModelError, match=rf"config\.json: architectures: received '{name}', which does not"):
        read_checkpoint(folder)


def test_layers_that_were_saved_without_a_head_are_refused(tmp_path, make_checkpoint):
    base = {"architectures": ["LlamaModel"], "tie_word_embeddings": False}
    with pytest.raises(
        CheckpointError, match=r"architectures: \[LlamaModel\] and tie_word_embeddings: false"
    ) as caught:
        read_checkpoint(make_checkpoint(tmp_path / "model", **base))
    assert "LlamaForCausalLM" in (caught.value.hint or "")
    read_checkpoint(make_checkpoint(tmp_path / "tied", **base | {"tie_word_embeddings": True}))
    table = np.zeros((8, 4), np.float32)
    save_file({"embed.weight": table, "lm_head.weight": table}, tmp_path / "model" / "model.safetensors")
    read_checkpoint(tmp_path / "model")


def test_another_layout_of_transformers_leaves_the_refusal_to_transformers(tmp_path, make_checkpoint, monkeypatch):
    for names in (known_types, language_models):
        names.cache_clear()
    monkeypatch.setattr(known_module, "_read", lambda name: "")
    assert known_types() == language_models() == frozenset()
    read_checkpoint(make_checkpoint(tmp_path / "model", model_type="lllama"))
    for names in (known_types, language_models):
        names.cache_clear()


SPARSE = {
    "minimax_m3_vl_text": ({"layer_types": ["full_attention", "minimax_m3_sparse"]}, "layer 1 of type 'minimax_m3_sp"),
    "minimax_m3_vl": ({"text_config": {"layer_types": ["minimax_m3_sparse"]}}, "layer 0 of type 'minimax_m3_sparse'"),
    "MiniMax": ({"sparse_attention_config": {"sparse_attention_freq": [0, 0, 1]}}, "layer 2 of type 'minimax_m3_spa"),
    "qwen4_exp": ({"text_config": {"model_type": "qwen4_exp_text"}}, "layer 0 of type 'indexed_attention'"),
    "qwen4_exp_text": ({"layer_types": ["linear_attention", "full_attention"]}, "layer 1 of type 'indexed_attention'"),
}
"""Model type -> its config, and the layer that is named."""


@pytest.mark.parametrize("model_type", SPARSE)
def test_layers_that_choose_their_rows_are_refused_by_the_config(tmp_path, model_type):
    config, layer = SPARSE[model_type]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type} | config))
    with pytest.raises(UnsupportedModelError, match=f"received {layer}"):
        refuse_type(model_type, path)
    for whole in ({"layer_types": ["full_attention"]}, {"sparse_attention_config": {"sparse_attention_freq": [0]}}):
        path.write_text(json.dumps({"model_type": "minimax_m3_vl_text"} | whole))
        refuse_type("minimax_m3_vl_text", path)
