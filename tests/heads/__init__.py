"""Heads with random weights, written as their publishers write them, for small targets. One file for each kind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP = 32, 4, 2, 8, 48

Shapes = Mapping[str, tuple[int, ...]]


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pickle: str = "") -> Path:
    """Return a folder with a config and weights: safetensors, or a pickle of this name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if pickle:
        torch.save(dict(tensors), folder / pickle)
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def random_tensors(shapes: Shapes, seed: int = 0, scale: float = 1.0) -> dict[str, Tensor]:
    """Return matrices of about the scale that keeps lengths, norms around one."""
    random = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=random)
        made[name] = 1 + 0.1 * values if len(shape) == 1 else scale * values / shape[-1] ** 0.5
    return made


def layer(
    prefix: str, *, inputs: int | None = None, width: int = WIDTH, qk_norm: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of one decoder layer of Llama's form, both norms included."""
    inputs = inputs or width
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (HEADS * HEAD_DIM, inputs),
        "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, inputs),
        "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, inputs),
        "self_attn.o_proj.weight": (width, HEADS * HEAD_DIM),
        "mlp.gate_proj.weight": (MLP, width),
        "mlp.up_proj.weight": (MLP, width),
        "mlp.down_proj.weight": (width, MLP),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    if qk_norm:
        shapes |= {f"self_attn.{name}_norm.weight": (HEAD_DIM,) for name in "qk"}
    return {prefix + name: shape for name, shape in shapes.items()}


def llama_config(vocabulary: int, *, layers: int = 1, width: int = WIDTH, **more: Any) -> dict[str, Any]:
    """Return what any head's config has in Llama's words."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": MLP,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "max_position_embeddings": 256, "vocab_size": vocabulary, "tie_word_embeddings": False,
        "torch_dtype": "float32", "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, **more,
    }  # fmt: skip


def draft_vocabulary(vocabulary: int, size: int) -> dict[str, Tensor]:
    """Return d2t (offsets) and t2d of every `vocabulary / size`-th token or so."""
    ids = (torch.arange(size) * vocabulary) // size
    is_drafted = torch.zeros(vocabulary, dtype=torch.bool)
    is_drafted[ids] = True
    return {"d2t": ids - torch.arange(size), "t2d": is_drafted}
