"""Train BiTA: the mask tokens and the prefix that they attend to, with a frozen target. Write new parameters in the
layout of the published code."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from speccompile.drafters.bita.dialects import MASKS, PREFIX
from speccompile.drafters.bita.drafter import Trained, check_windows
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import target_sizes, write_head
from speccompile.drafters.pass_.training import MaskStudent, mask_rows
from speccompile.drafters.sizes import HEADS, LAYERS, config_value
from speccompile.drafters.trainable import NewDrafter
from speccompile.drafters.weights import load_head


def student(context: DrafterContext, depth: int) -> "BitaStudent":
    """Return the trainable drafter. Raise UnsupportedModelError for a target with sliding-window attention."""
    target = check_windows(context.target(), context.target_files.folder)
    return BitaStudent(context.head, load_head(Trained(context.head), context.head), target, depth)


class BitaStudent(MaskStudent):
    """Trainable mask rows with a prefix."""

    network: Trained

    def rows(self) -> tuple[Tensor, Sequence[Tensor]]:
        return self.network.masks(), self.network.prefix()


_INSIDE = "model."
_SCALE = 0.02
"""Standard deviation of a new prefix: small, so that it hardly contributes to a mask token at first."""


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write new mask tokens and a random prefix. Raise RecipeError if the depth needs no mask token."""
    (hidden, vocabulary), config, prompts = target_sizes(wanted), wanted.config, int(wanted.sizes["prompts"])
    masks, heads, layers = mask_rows(wanted), config_value(config, *HEADS), config_value(config, *LAYERS)
    key_heads = config_value(config, "num_key_value_heads", default=heads)
    width = config_value(config, "head_dim", default=hidden // heads)
    random = torch.Generator().manual_seed(wanted.seed + 1)
    prefix = _SCALE * torch.randn(prompts, 2 * layers * key_heads * width, generator=random)
    words = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": key_heads, "head_dim": width, "vocab_size": vocabulary, "mask_num": len(masks),
        "mask_diff": True, "prompt_num": prompts, "prefix_projection": False,
        "base_model_name_or_path": wanted.reference,
    }  # fmt: skip
    write_head(folder, words, {_INSIDE + MASKS: masks, _INSIDE + PREFIX: prefix})
