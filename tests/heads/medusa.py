"""Medusa heads in the dialects of FasterDecoding, text-generation-inference and vLLM, and inside a Medusa-2 model."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PretrainedConfig

from tests.heads import random_tensors, write
from tests.json_files import merge_json

HEADS, LAYERS = 3, 2


def _weights(target: PretrainedConfig, heads: int, layers: int, seed: int) -> tuple[dict[Any, Tensor], list[Tensor]]:
    """Return the weight and bias of every layer, by (head, layer, word), and a projection for each head."""
    hidden, vocabulary = target.hidden_size, target.vocab_size
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        shapes |= {f"{head} {layer} weight": (hidden, hidden) for layer in range(layers)}
        shapes |= {f"{head} {layer} bias": (1, hidden) for layer in range(layers)}
        shapes[f"{head} projection"] = (vocabulary, hidden)
    made = random_tensors(shapes, seed, 1.5)
    blocks = {tuple(name.split()): tensor.squeeze(0) for name, tensor in made.items() if "projection" not in name}
    return blocks, [made[f"{head} projection"] for head in range(heads)]


def _numbered(target: PretrainedConfig, heads: int, layers: int, seed: int, *, projections: bool) -> dict[str, Tensor]:
    blocks, heads_ = _weights(target, heads, layers, seed)
    tensors = {f"{head}.{layer}.linear.{word}": tensor for (head, layer, word), tensor in blocks.items()}
    return tensors | ({f"{head}.{layers}.weight": each for head, each in enumerate(heads_)} if projections else {})


def faster_decoding(
    folder: Path, target: PretrainedConfig, *, heads: int = HEADS, layers: int = LAYERS, said: int | None = None,
    projections: bool = True, pickle: bool = True, seed: int = 0, **more: Any,
) -> Path:  # fmt: skip
    """Write medusa_lm_head.pt, or text-generation-inference's file. said: heads that the config counts. projections:
    without any, heads project by the target's, as those of the later training."""
    tensors = _numbered(target, heads, layers, seed, projections=projections)
    config = {"medusa_num_heads": heads if said is None else said, "medusa_num_layers": layers, **more}
    write(folder, config, tensors, pickle="medusa_lm_head.pt" if pickle else "")
    if not pickle:
        (folder / "model.safetensors").rename(folder / "medusa_lm_head.safetensors")
    return folder


def vllm(
    folder: Path, target: PretrainedConfig, *, heads: int = HEADS, layers: int = LAYERS, shared: bool = False,
    bias: bool = True, own: int = 0, narrowed: bool = True, middle: str = "", prefix: str = "", seed: int = 0,
    **more: Any,
) -> Path:  # fmt: skip
    """shared: one projection for all heads. own: tokens that the heads know, by a map; narrowed: the projections have
    these rows alone. middle: between the number of a layer and its tensor, "linear." in some. prefix: of all names."""
    blocks, projections = _weights(target, heads, layers, seed)
    tensors = {
        f"blocks.{h}.layers.{layer}.{middle}{w}": x for (h, layer, w), x in blocks.items() if bias or w != "bias"
    }
    ids = torch.randperm(target.vocab_size, generator=torch.Generator().manual_seed(seed))[: own or None]
    rows = [each[ids] if own and narrowed else each for each in projections]
    tensors |= {"lm_head.weight": rows[0]} if shared else {f"lm_heads.{i}.weight": each for i, each in enumerate(rows)}
    tensors = {prefix + name: tensor for name, tensor in tensors.items()} | ({"token_map": ids} if own else {})
    config = {
        "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size, "num_heads": heads, "num_hidden_layers": layers, "max_paths": 64, "topk": 10,
        "max_seq_len": 2**20, "truncated_vocab_size": own or None, "original_lm_head": shared, "medusa_fc_bias": bias,
    }  # fmt: skip
    return write(folder, config | more, tensors)


def into_model(folder: Path, target: PretrainedConfig) -> Path:
    """Turn a saved model into a Medusa-2 model: heads beside its own weights."""
    own = _numbered(target, HEADS, LAYERS, 0, projections=True)
    tensors = load_file(folder / "model.safetensors") | {f"medusa_head.{name}": each for name, each in own.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    merge_json(folder / "config.json", {"medusa_num_heads": HEADS, "medusa_num_layers": LAYERS})
    return folder
