"""Train PARD: one causal pass over a text and the mask tokens after its anchors, which the text does not attend to.
Write new draft models."""

import json
from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.models.probe import with_hook
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft.masked import with_masks_at
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import mask_token
from speccompile.drafters.model import training as model
from speccompile.drafters.pard.reading import KEY
from speccompile.drafters.saving import write_config
from speccompile.drafters.trainable import NewDrafter, TeacherBatch


def student(context: DrafterContext, depth: int) -> "PardStudent":
    (drafter,) = context.inputs.models
    (probed,), token = context.drafters(), context.drafter.mask_token
    assert token is not None, "the plan reads it"
    return PardStudent(drafter.folder, context.vocabulary_size, depth, probed, token)


class PardStudent(model.ModelStudent):
    """Trainable PARD drafter. The anchor's row predicts draft 0, the d-th mask token after it predicts draft d."""

    even, every = False, False

    def __init__(self, folder: Path, target_size: int, depth: int, probed: Decoder, token: int) -> None:
        """probed: decoder with the attention of the layers; its weights are not trained."""
        super().__init__(folder, target_size, depth)
        # In a tuple, so that the network is not registered as a submodule twice.
        self.hooked, self.token = (with_hook(self.network, probed.layers, probed.shape),), token

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`. One pass over T rows of the text and A (depth - 1) masks."""
        (batch, length), count, masks = seen.tokens.shape, anchors.shape[1], depth - 1
        (decoder,), rows = self.hooked, torch.arange(length, device=anchors.device)
        behind = (anchors[..., None] + torch.arange(1, depth, device=anchors.device)).flatten(1)
        positions = decoder.clamp(torch.cat([rows.expand(batch, -1), behind], 1))
        tokens = torch.cat([seen.tokens.clamp(max=self.rows - 1), torch.full_like(behind, self.token)], 1)
        current = TrainingPass([layer.window for layer in decoder.layers])
        current.set_positions(positions, positions, with_masks_at(rows, anchors, masks))
        drafting = length + torch.arange(count * masks, device=anchors.device).expand(batch, -1)
        logits = decoder.run(current, tokens, torch.cat([anchors, drafting], 1))[..., : self.size]
        first, others = logits.split([count, count * masks], 1)
        return [first, *others.unflatten(1, (count, masks)).unbind(2)]


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new language model with a mask token."""
    model.new(folder, wanted)
    config = json.loads((folder / CONFIG).read_text())
    write_config(folder, config | {KEY: mask_token(wanted)})
