"""Random heads for the small model in the proof of distributions."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from speccompile.drafters.target import NORM
from speccompile.plan.head import HeadPlan, TensorSource
from speccompile.plan.layers import LayerShape

WEIGHTS = "model.safetensors"
IDS = ("d2t", "masked_embedding.token_ordering")


def write_small(
    shapes: Mapping[str, tuple[int, ...]], folder: Path, vocabulary_size: int, given: Mapping[str, Tensor] | None = None
) -> dict[str, TensorSource]:
    """Write random tensors of these normalised names and shapes, with a variance that keeps distributions from being
    flat, and return their sources. `d2t` spreads over the vocabulary. given: tensors to write as they are."""
    random, tensors = torch.Generator().manual_seed(2), dict[str, Tensor]()
    for name, shape in shapes.items():
        if name == "d2t":
            places = torch.arange(shape[0])
            tensors[name] = places * vocabulary_size // shape[0] - places
        elif len(shape) == 1:
            tensors[name] = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
        else:
            tensors[name] = 1.5 * torch.randn(shape, generator=random) / shape[-1] ** 0.5
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors | dict(given or {}), folder / WEIGHTS)
    dtypes = {name: "I64" if name in IDS else "F32" for name in shapes}
    return {name: TensorSource(WEIGHTS, name, tuple(shape), dtypes[name]) for name, shape in shapes.items()}


def small_taps(head: HeadPlan, target_layers: int) -> tuple[str, ...]:
    """Return one tap of a small target for each of the head's: outputs of its layers in turn; final-norm taps stay."""
    places = [f"layers.{index % target_layers}.output" for index in range(len(head.taps))]
    return tuple(NORM if tap == NORM else place for tap, place in zip(head.taps, places, strict=True))


def small_layers(layers: LayerShape, hidden_size: int) -> LayerShape:
    """Return layers of the same form with this hidden size and two attention heads of width 16."""
    return replace(
        layers, hidden_size=hidden_size, intermediate_size=48, heads=2, kv_heads=1, head_dim=16,
        rope={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
