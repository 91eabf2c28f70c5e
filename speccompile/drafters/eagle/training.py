"""Train EAGLE on its own output (HASS, Zhang et al. 2024), and write new heads in vLLM's dialect."""

from pathlib import Path

import torch

from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle.drafter import load_reader
from speccompile.drafters.eagle.reading import head_shapes
from speccompile.drafters.initialization import layer_shape, llama_config, random_tensors, write_head
from speccompile.drafters.trainable import NewDrafter
from speccompile.drafters.trainable_paired import TrainablePairedHead


def student(context: DrafterContext, depth: int) -> TrainablePairedHead:
    return TrainablePairedHead(context.head, load_reader(context), depth)


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head with random weights, whose fc selects the features from [embedding ; features]."""
    base = llama_config(wanted)
    tensors = random_tensors(head_shapes(layer_shape(base), has_bias=False), wanted.seed)
    width = base["hidden_size"]
    tensors["fc.weight"] = torch.eye(width, 2 * width).roll(width, 1)
    write_head(folder, {"architectures": ["EagleLlamaForCausalLM"], **base, "bias": False}, tensors)
