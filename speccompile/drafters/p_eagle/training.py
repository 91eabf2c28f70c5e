"""Train P-EAGLE: blocks of masks after the anchors of a text. Write new heads in speculators' dialect."""

from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.step.draft.masked import with_masks_at
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle3.training import NamesTaps, initial_tensors, speculators_config
from speccompile.drafters.initialization import layer_shape, llama_config, mask_token, target_sizes, write_head
from speccompile.drafters.p_eagle.dialects import MASK
from speccompile.drafters.p_eagle.drafter import PEagleReader, load_reader
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, rows_at


def student(context: DrafterContext, depth: int) -> "PEagleStudent":
    return PEagleStudent(context.head, load_reader(context, depth - 1), depth)


class PEagleStudent(NamesTaps):
    """Trainable P-EAGLE head. Row p holds the features of token p and token p + 1. Masks follow row a - 1 of each
    anchor a. A mask attends to the rows up to a - 1 and to the earlier masks of its anchor; no other row attends to
    masks."""

    network: PEagleReader
    every = False

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`. One pass over T - 1 rows of the text and A (depth - 1) masks."""
        reader, (batch, count), masks = self.network, anchors.shape, depth - 1
        rows, last = torch.arange(seen.tokens.shape[1] - 1, device=anchors.device), anchors - 1
        behind = (last[..., None] + 1 + torch.arange(masks, device=anchors.device)).flatten(1)
        positions = reader.clamp(torch.cat([rows.expand(batch, -1), behind], 1))
        mask = reader.fuse_mask().expand(batch, count * masks, -1)
        x = torch.cat([reader.fuse(seen.features[:, :-1]), mask], 1)
        tokens = torch.cat([seen.tokens[:, 1:], torch.full_like(behind, reader.mask_token)], 1)
        current = TrainingPass(list(reader.shape_of_layers.windows))
        current.set_positions(positions, positions, with_masks_at(rows, last, masks))
        hidden = reader.run(x, reader.embed(tokens), current, reader.rotary(positions)).hidden
        drafting = len(rows) + torch.arange(count * masks, device=anchors.device).view(count, masks)
        places = [last, *drafting.unbind(1)]
        return [reader.logits(rows_at(hidden, each.expand(batch, -1))) for each in places]


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head: EAGLE-3's initial weights, and random features of the mask."""
    base = llama_config(wanted)
    width = len(wanted.taps) * target_sizes(wanted)[0]
    mask = torch.randn(1, 1, width, generator=torch.Generator().manual_seed(wanted.seed + 1))
    config = speculators_config(wanted, base, "peagle", "PEagleDraftModel") | {"mask_token_id": mask_token(wanted)}
    write_head(folder, config, initial_tensors(wanted, layer_shape(base)) | {MASK: mask})
