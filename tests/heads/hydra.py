"""Hydra heads as the original writes them: the state dict of its module."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from tests.heads import random_tensors, write

HEADS = 3


def hydra(
    folder: Path, target: PretrainedConfig, *, heads: int = HEADS, layers: int = 2, prefix: bool = False,
    grounded: bool = True, embedding: Tensor | None = None, said: int | None = None, seed: int = 0, **more: Any,
) -> Path:  # fmt: skip
    """prefix: Hydra++, where modules of dropout count among the blocks. embedding: a copy of the target's, which the
    state dict of the original's module has. said: heads that the config speaks of."""
    hidden, vocabulary = target.hidden_size, target.vocab_size
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for layer in range(layers):
            place, is_wide = 2 * layer + 1 if prefix else layer, grounded and layer == 0
            for word in ("linear", "res_connection") if is_wide else ("linear",):
                name = f"hydra_mlp.{head}.{place}.{word}"
                shapes[f"{name}.weight"] = (hidden, (head + 2) * hidden if is_wide else hidden)
                shapes[f"{name}.bias"] = (1, hidden)
        name = f"hydra_lm_head.{head}{'.1' if prefix else ''}"
        shapes |= {f"{name}.weight": (vocabulary, hidden), f"{name}.bias": (1, vocabulary)}
    if prefix:
        shapes |= _layer(target)
    tensors = {n: x.squeeze(0) if n.endswith(".bias") else x for n, x in random_tensors(shapes, seed, 1.5).items()}
    if embedding is not None:
        tensors["input_embed_fn.weight"] = embedding
    module = nn.Module()  # whose state dict has what torch writes beside tensors
    config: dict[str, Any] = {
        "hydra_num_heads": heads if said is None else said, "hydra_num_layers": layers,
        "hydra_head_arch": "prefix-mlp" if prefix else "mlp", "grounded_heads": grounded, "hidden_state_offset": 0,
        "base_model_name_or_path": "target",
    }  # fmt: skip
    write(folder, config | more, tensors)
    (folder / "model.safetensors").unlink()
    state = module.state_dict()
    state.update(tensors)
    torch.save(state, folder / "hydra_lm_head.pt")
    return folder


def _layer(target: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """Return a whole one-layer model of the target's form, with an embedding that nothing reads."""
    width, inner, head_dim = target.hidden_size, target.intermediate_size, target.head_dim
    queries, keys = target.num_attention_heads * head_dim, target.num_key_value_heads * head_dim
    shapes = {
        "embed_tokens.weight": (target.vocab_size, width),
        "layers.0.self_attn.q_proj.weight": (queries, width),
        "layers.0.self_attn.k_proj.weight": (keys, width),
        "layers.0.self_attn.v_proj.weight": (keys, width),
        "layers.0.self_attn.o_proj.weight": (width, queries),
        "layers.0.mlp.gate_proj.weight": (inner, width),
        "layers.0.mlp.up_proj.weight": (inner, width),
        "layers.0.mlp.down_proj.weight": (width, inner),
        "layers.0.input_layernorm.weight": (width,),
        "layers.0.post_attention_layernorm.weight": (width,),
        "norm.weight": (width,),
    }
    return {f"prefix_embeding_layer.{name}": shape for name, shape in shapes.items()}
