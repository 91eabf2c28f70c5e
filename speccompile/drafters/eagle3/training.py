"""Train EAGLE-3, and write new heads in the dialects of SpecForge and speculators."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle3.dialects import SPECULATORS
from speccompile.drafters.eagle3.drafter import load_reader
from speccompile.drafters.eagle3.reading import head_shapes
from speccompile.drafters.eagle3.taps import IDS, boundaries, with_ids
from speccompile.drafters.initialization import (
    layer_shape,
    llama_config,
    proposal,
    random_tensors,
    renamed,
    target_sizes,
    vocabulary_maps,
    write_head,
)
from speccompile.drafters.trainable import NewDrafter, TrainableHead
from speccompile.drafters.trainable_paired import TrainablePairedHead
from speccompile.plan.layers import LayerShape

_SWITCHES = ("norm_before_residual", "norm_output", "norm_before_fc", "fc_norm")
_PLAIN = dict.fromkeys(_SWITCHES, False) | {
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
}
"""Switches of EAGLE-3 as in the paper, by the names of `HeadPlan.switches`."""


def student(context: DrafterContext, depth: int) -> "Eagle3Student":
    return Eagle3Student(context.head, load_reader(context), depth)


class NamesTaps(TrainableHead):
    """A head whose saved config always names the taps: without them, engines use different defaults."""

    def described(self, config: dict[str, Any]) -> dict[str, Any]:
        """See `TrainableHead.described`."""
        return with_ids(config, self.head.dialect, self.head.taps)


class Eagle3Student(NamesTaps, TrainablePairedHead):
    """Trainable EAGLE-3 head."""


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head, initialized with the target's final norm and the rows of its output head."""
    base, size = llama_config(wanted), _size(wanted)
    tensors = initial_tensors(wanted, layer_shape(base))
    if wanted.dialect == SPECULATORS:
        write_head(folder, speculators_config(wanted, base, "eagle3", "Eagle3DraftModel"), tensors)
        return
    hidden = target_sizes(wanted)[0]
    config = {"architectures": ["LlamaForCausalLMEagle3"], **base, "draft_vocab_size": size}
    config["target_hidden_size"] = hidden
    config["eagle_config"] = {
        IDS: [each - 1 for each in boundaries(wanted.taps)], "use_aux_hidden_state": True,
    }  # fmt: skip
    if base["hidden_size"] == hidden:
        tensors.pop("embed_tokens.weight")  # engines share the target's
    write_head(folder, config, renamed(tensors, [("layers.0.", "midlayer.")]))


def speculators_config(wanted: NewDrafter, base: dict[str, Any], kind: str, architecture: str) -> dict[str, Any]:
    """Return the config.json of a head in speculators' dialect."""
    hidden = target_sizes(wanted)[0]
    return {
        "architectures": [architecture],
        **proposal(wanted, kind),
        "transformer_layer_config": {key: value for key, value in base.items() if key != "torch_dtype"},
        "draft_vocab_size": _size(wanted),
        IDS: boundaries(wanted.taps),
        **dict.fromkeys(_SWITCHES, False),
        "embed_requires_grad": False,
        "target_hidden_size": None if base["hidden_size"] == hidden else hidden,
        "tie_word_embeddings": False,
        "torch_dtype": base["torch_dtype"],
    }


def initial_tensors(wanted: NewDrafter, layers: LayerShape) -> dict[str, Tensor]:
    """Return initial tensors by normalised names, with the embedding and the vocabulary maps.

    A head that is narrower than its target starts from a random projection of the target's embedding and output head,
    which approximately preserves inner products of tokens (Johnson and Lindenstrauss 1984).
    """
    hidden, vocabulary = target_sizes(wanted)
    ends, narrow = wanted.ends, layers.hidden_size
    shapes = head_shapes(layers, len(wanted.taps), (hidden, vocabulary), _size(wanted), {}, _PLAIN)
    shapes["fc.weight"] = (narrow, len(wanted.taps) * hidden)
    given = {"embed_tokens.weight": ends.embed.table.float(), "lm_head.weight": ends.head.weight.float()}
    if wanted.kept is not None:
        given["lm_head.weight"] = functional.embedding(wanted.kept, given["lm_head.weight"])
    if narrow != hidden:
        random = torch.Generator().manual_seed(wanted.seed)
        shown = torch.randn(hidden, narrow, generator=random) / narrow**0.5
        given = {name: tensor @ shown for name, tensor in given.items()}
    norm = ends.norm() if narrow == hidden else None
    if norm is not None:
        given["norm.weight"] = norm
    maps = {} if wanted.kept is None else vocabulary_maps(wanted.kept, vocabulary)
    shapes = {name: shape for name, shape in shapes.items() if name not in given and name != "d2t"}
    return random_tensors(shapes, wanted.seed) | given | maps


def _size(wanted: NewDrafter) -> int:
    return target_sizes(wanted)[1] if wanted.kept is None else len(wanted.kept)
