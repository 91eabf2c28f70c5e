"""Folders that are no whole checkpoint are called what they are, and weights that do not fit config.json are named."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.layer_shapes import ROPE_TYPES
from speccompile.errors import CheckpointError, UnsupportedModelError

SIZES = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def write(folder, **config):
    layer = {
        "self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8),
        "mlp.gate_proj": (12, 8), "mlp.up_proj": (12, 8), "mlp.down_proj": (8, 12),
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": (16, 8)} | {
        f"model.layers.0.{name}.weight": shape for name, shape in layer.items()
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


def test_sizes_that_fit_are_taken(tmp_path):
    assert read_checkpoint(write(tmp_path))[1].hidden_size == LlamaConfig(**SIZES).hidden_size


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
