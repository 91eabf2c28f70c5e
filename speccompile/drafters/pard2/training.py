"""Train PARD-2: blocks of masks after the anchors of a text, with the target's features. Write new draft models in the
published layout, with the projection among the other weights."""

from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.step.draft.masked import with_masks_at
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import (
    layer_shape,
    llama_config,
    mask_token,
    random_tensors,
    renamed,
    target_sizes,
    write_head,
)
from speccompile.drafters.model.training import copy_tokenizer
from speccompile.drafters.pard.reading import KEY
from speccompile.drafters.pard2.drafter import Pard2Reader, load_reader
from speccompile.drafters.pard2.reading import DEFAULT_SCALE, IDS, ids_of, model_shapes
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead, rows_at


def student(context: DrafterContext, depth: int) -> "Pard2Student":
    return Pard2Student(context.head, load_reader(context, depth - 1), depth)


class Pard2Student(TrainableHead):
    """Trainable PARD-2 draft model. Row p holds token p and the features of token p - 1. The masks of an anchor hold
    the features in its row, and see the rows up to it and the earlier masks of their own anchor."""

    network: Pard2Reader
    every = False

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`. One pass over T rows of the text and A (depth - 1) masks."""
        reader, (batch, count), masks = self.network, anchors.shape, depth - 1
        rows = torch.arange(seen.tokens.shape[1], device=anchors.device)
        behind = (anchors[..., None] + torch.arange(1, depth, device=anchors.device)).flatten(1)
        positions = reader.clamp(torch.cat([rows.expand(batch, -1), behind], 1))
        x = reader.fuse(torch.cat([torch.zeros_like(seen.features[:, :1]), seen.features[:, :-1]], 1))
        x = torch.cat([x, rows_at(x, anchors).repeat_interleave(masks, 1)], 1)
        tokens = torch.cat([seen.tokens, torch.full_like(behind, reader.mask_token)], 1)
        current = TrainingPass(list(reader.shape_of_layers.windows))
        current.set_positions(positions, positions, with_masks_at(rows, anchors, masks))
        hidden = reader.run(x, reader.embed(tokens), current, reader.rotary(positions)).hidden
        drafting = len(rows) + torch.arange(count * masks, device=anchors.device).view(count, masks)
        places = [anchors, *drafting.unbind(1)]
        return [reader.logits(rows_at(hidden, each.expand(batch, -1))) for each in places]


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new Llama with random weights, the target's tokenizer and a projection of the taps."""
    assert wanted.target is not None, "a language model has the target's tokenizer"
    base, (hidden, vocabulary) = llama_config(wanted), target_sizes(wanted)
    shapes = model_shapes(layer_shape(base), len(wanted.taps) * hidden, vocabulary, bias=False)
    config = {
        "architectures": ["LlamaForCausalLM"], **base, "spd_type": "pard2", "pard2": True, KEY: mask_token(wanted),
        "pard2_scale": DEFAULT_SCALE, "pard2_proj_bias": False, "pard2_target_dim": len(wanted.taps) * hidden,
        IDS: ids_of(wanted.taps),
    }  # fmt: skip
    model = [(name, f"model.{name}") for name in ("layers.", "embed_tokens.", "norm.")]
    write_head(folder, config, renamed(random_tensors(shapes, wanted.seed), model))
    copy_tokenizer(wanted.target, folder)
