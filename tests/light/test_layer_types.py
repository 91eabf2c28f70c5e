"""Kinds of layers and of models that nothing can be made of are named when the folder is read."""

import pytest
from transformers.configuration_utils import _LEGACY_LAYER_TYPE_REMAP, ALLOWED_ATTN_LAYER_TYPES

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.layer_types import KNOWN, LISTS
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
