"""EAGLE while it learns, reading its own output (HASS, Zhang et al. 2024), and new heads in vLLM's dialect."""

from pathlib import Path

import torch

from speccompile.drafters.beginning import llama_words, random_tensors, shape_of, write_head
from speccompile.drafters.eagle.drafter import load_reader
from speccompile.drafters.eagle.reading import head_shapes
from speccompile.drafters.learning import Wanted
from speccompile.drafters.learning_paired import PairedLearner
from speccompile.drafters.site import Site


def learner(site: Site, depth: int) -> PairedLearner:
    return PairedLearner(site.head, load_reader(site), depth)


def new(folder: Path, wanted: Wanted) -> None:
    """At first the features, which stand last, pass through its first matrix as they are."""
    words = llama_words(wanted)
    tensors = random_tensors(head_shapes(shape_of(words), has_bias=False), wanted.seed)
    width = words["hidden_size"]
    tensors["fc.weight"] = torch.eye(width, 2 * width).roll(width, 1)
    write_head(folder, {"architectures": ["EagleLlamaForCausalLM"], **words, "bias": False}, tensors)
