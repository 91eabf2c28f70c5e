"""Folders that are no whole checkpoint are called what they are, and weights that do not fit config.json are named."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from scripts.architectures.configurations import configuration
from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.layer_shapes import ATTENTION, ROPE_TYPES, check_layers
from speccompile.compiler.checkpoints.layer_shapes import FUSED as FUSED_TYPES
from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import CheckpointError, UnsupportedModelError
from tests.suite.selection import sweep_but

SIZES = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


LAYER = {
    "self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8),
    "mlp.gate_proj": (12, 8), "mlp.up_proj": (12, 8), "mlp.down_proj": (8, 12),
}  # fmt: skip


def write(folder, layer=None, layers=1, **config):
    shapes = {"model.embed_tokens.weight": (16, 8)} | {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(layers)
        for name, shape in (layer or LAYER).items()
    }
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(SIZES | config))
    return folder


@pytest.mark.parametrize(
    ("config", "tensor", "shapes", "said", "fits"),
    [
        ({"num_key_value_heads": 4}, "k_proj", "[4, 8], expected [8, 8]", "num_key_value_heads: 4", "heads: 2"),
        ({"num_key_value_heads": 1}, "k_proj", "[4, 8], expected [2, 8]", "num_key_value_heads: 1", "heads: 2"),
        ({"intermediate_size": 20}, "_proj", "[", "intermediate_size: 20", "intermediate_size: 12"),
        ({"hidden_size": 16}, "embed_tokens", "[16, 8], expected [16, 16]", "hidden_size: 16", "hidden_size: 8"),
        ({"head_dim": 4}, "_proj", "[", "head_dim: 4", "head_dim: 2"),
        ({"num_attention_heads": 2, "head_dim": 2}, "_proj", "[", "num_attention_heads: 2", "heads: 4"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named_with_both_shapes_and_the_key(tmp_path, config, tensor, shapes, said, fits):
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(write(tmp_path, **config))
    for each in ("received tensor 'model.", tensor, shapes, f"as {said} in config.json says"):
        assert each in str(caught.value)
    assert fits in caught.value.hint
    assert "download" not in caught.value.hint


FUSED = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": 0}


@pytest.mark.parametrize(
    ("config", "tensor", "said", "fits"),
    [
        (
            {"num_key_value_heads": 4},
            "qkv_proj.weight' of shape [16, 8], expected [24, 8]",
            "num_key_value_heads: 4",
            "2",
        ),
        ({"intermediate_size": 20}, "_proj.weight' of shape [", "intermediate_size: 20", "12"),
        (
            {"num_attention_heads": 2, "head_dim": 2},
            "o_proj.weight' of shape [8, 8]",
            "num_attention_heads: 2",
            "4",
        ),
    ],
)
def test_fused_projections_that_do_not_fit_are_named(tmp_path, config, tensor, said, fits):
    layer = {
        "self_attn.qkv_proj": (16, 8),
        "self_attn.o_proj": (8, 8),
        "mlp.gate_up_proj": (24, 8),
        "mlp.down_proj": (8, 12),
    }
    write(tmp_path, layer, **FUSED)
    assert read_checkpoint(tmp_path)[1].hidden_size == 8
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(write(tmp_path, layer, **FUSED | config))
    assert tensor in str(caught.value)
    assert f"as {said} in config.json says" in str(caught.value)
    assert caught.value.hint.endswith(f": {fits}")


def test_a_vocabulary_that_does_not_fit_is_named_with_both_shapes_and_the_key(tmp_path):
    said = (
        r"'model.embed_tokens.weight' of shape \[16, 8\], expected \[20, 8\], a row for each token, as vocab_size: 20"
    )
    with pytest.raises(CheckpointError, match=said) as caught:
        read_checkpoint(write(tmp_path, vocab_size=20))
    assert caught.value.hint.endswith("these weights fit vocab_size: 16")


def test_layers_that_lack_or_would_be_left_out_are_named(tmp_path):
    with pytest.raises(
        CheckpointError, match="no tensor of layer 1, expected layers 0 to 1, as num_hidden_layers: 2 in"
    ):
        read_checkpoint(write(tmp_path, num_hidden_layers=2))
    write(tmp_path, layers=3, num_hidden_layers=2)
    with pytest.raises(
        CheckpointError, match=r"tensor 'model.layers.2.\S+', expected layers 0 to 1, as num_hidden_layers: 2"
    ) as e:
        read_checkpoint(tmp_path)
    assert "fit num_hidden_layers: 3" in e.value.hint
    assert read_checkpoint(write(tmp_path, layers=3, num_hidden_layers=3))[1].layers == 3


def test_an_mtp_layer_behind_the_others_is_taken(tmp_path):
    """Find the layer where DeepSeek V3 stores it."""
    layer = LAYER | {"eh_proj": (8, 16)}
    assert read_checkpoint(write(tmp_path, layer, layers=3, num_hidden_layers=2))[1].layers == 2


MORE = {"num_key_value_heads": 1, "intermediate_size": 160, "head_dim": 8}


@pytest.mark.parametrize(
    "model_type", sweep_but(("cohere", "phi3"), sorted({*ATTENTION, *FUSED_TYPES}), "every architecture")
)
def test_weights_of_transformers_own_models_fit_their_configs(tmp_path, model_type):
    """Draw sizes: transformers would not load what `plan` refuses."""
    import torch
    from transformers import AutoModelForCausalLM

    for more in ({}, MORE):
        config = configuration(model_type)
        for key, value in more.items():
            if type(getattr(config, key, None)) is int:
                setattr(config, key, value)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        tensors = {name: StoredTensor("x", "F32", tuple(each.shape), 0, 0) for name, each in model.state_dict().items()}
        written = json.loads(config.to_json_string(use_diff=False))
        check_layers(tmp_path, written, tensors)
        for key in ("num_attention_heads", "hidden_size"):
            with pytest.raises(CheckpointError):
                check_layers(
                    tmp_path, written | {key: 2 * written[key], "head_dim": written.get("head_dim") or 8}, tensors
                )


def test_sizes_that_fit_are_taken(tmp_path):
    assert read_checkpoint(write(tmp_path))[1].hidden_size == LlamaConfig(**SIZES).hidden_size


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_size": 8.5}, "hidden_size: 8.5"),
        ({"num_hidden_layers": -2}, "num_hidden_layers: -2"),
        ({"num_attention_heads": "4"}, "num_attention_heads: '4'"),
        ({"intermediate_size": True}, "intermediate_size: True"),
    ],
)
def test_sizes_that_no_model_has_are_refused(tmp_path, config, said):
    with pytest.raises(CheckpointError, match=rf"config\.json: received {said}, expected a whole number"):
        read_checkpoint(write(tmp_path, **config))


def test_an_unknown_position_scaling_is_named_with_those_that_transformers_has(tmp_path):
    assert set(ROPE_TYPES) == {"default", *ROPE_INIT_FUNCTIONS}
    with pytest.raises(UnsupportedModelError, match="rope_scaling: received the type 'su', expected one of default"):
        read_checkpoint(write(tmp_path, rope_scaling={"type": "su", "factor": 2.0}))


def test_weights_of_mlx_are_called_so(tmp_path):
    with pytest.raises(CheckpointError, match=r"weights that MLX has packed \(4 bits in groups of 32\)"):
        read_checkpoint(write(tmp_path, quantization={"group_size": 32, "bits": 4}))


def test_an_adapter_is_called_so(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/model"}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"received an adapter of some/model \(it has adapter_config.json\)") as e:
        read_checkpoint(tmp_path)
    assert "merge_and_unload" in e.value.hint


def test_gguf_files_are_called_so(tmp_path):
    (tmp_path / "model-Q4_K_M.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"received GGUF files \(model-Q4_K_M.gguf\)"):
        read_checkpoint(tmp_path)
