"""Kangaroo's adapters as the published code writes them: a pickle with attention and norms, beside a plain config."""

from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig

from tests.heads import HEADS, layer, llama_config, random_tensors, write


def kangaroo(
    folder: Path,
    target: PretrainedConfig,
    *,
    layers: int = 1,
    seed: int = 0,
    scale: float = 1.5,
    pickle: str = "pytorch_model.bin",
    **more: Any,
) -> Path:
    """Write one whose attention's heads are as wide as the target's hidden size says, and no fewer for keys."""
    width, vocabulary = target.hidden_size, target.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"norm.weight": (width,)}
    for index in range(layers):
        every = layer(f"layers.{index}.", width=width)
        shapes |= {
            name: (width, width) if len(shape) == 2 else shape
            for name, shape in every.items()
            if ".self_attn." in name or ".input_layernorm." in name
        }
    tensors = random_tensors(shapes, seed, scale)
    tensors["layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(width // HEADS // 2)
    config = llama_config(vocabulary, layers=layers, width=width)
    for key in ("num_key_value_heads", "head_dim", "rope_theta", "attention_bias"):
        del config[key]
    return write(folder, config | more, tensors, pickle=pickle)
