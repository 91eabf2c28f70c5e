"""Train PaSS: the frozen target reads a text, then the mask rows of all anchors, which alone are trained. Write new
mask rows."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft.masked import with_masks_at
from speccompile.compiler.step.draft.target_masks import embedded, put_prefix
from speccompile.compiler.step.training_pass import TrainingPass
from speccompile.compiler.weights.tensor import with_numbers
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import target_sizes, write_head
from speccompile.drafters.pass_.dialects import EMBEDDINGS
from speccompile.drafters.pass_.drafter import Masks
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableHead, rows_at
from speccompile.drafters.weights import load_head
from speccompile.errors import RecipeError
from speccompile.plan.head import HeadPlan


def student(context: DrafterContext, depth: int) -> "PassStudent":
    return PassStudent(context.head, load_head(Masks(context.head), context.head), context.target(), depth)


class MaskStudent(TrainableHead):
    """Trainable mask rows. The first draft of an anchor is the target's prediction and is not trained. The mask rows of
    an anchor attend causally to the text up to the anchor and to each other; the text does not attend to them."""

    every = False

    def __init__(self, head: HeadPlan, network: nn.Module, target: Decoder, depth: int) -> None:
        super().__init__(head, network, depth)
        self.target = with_numbers(target).float()

    def train(self, mode: bool = True) -> Self:
        """Set the mode as `Module.train`, but keep the frozen target in eval mode, without dropout."""
        super().train(mode)
        self.target.eval()
        return self

    @abstractmethod
    def rows(self) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the trained mask rows and prefix, as in `MaskReader`."""

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        first = rows_at(seen.logits, anchors)
        masks, prefix = self.rows()
        masks = masks[: depth - 1]
        if not len(masks):
            return [first]
        current, positions = self._read(seen)
        batch, places = len(anchors), torch.arange(1, depth, device=anchors.device)
        own = self.target.clamp(anchors[..., None] + places).flatten(1)  # [B, A * M]
        zeros = torch.zeros_like(own[:, :1]).expand(-1, put_prefix(current, prefix, batch))
        length = positions.shape[1]
        visible = with_masks_at(torch.arange(length, device=own.device), anchors, len(masks))[:, length:]
        seen_prefix = torch.ones_like(visible[:, :, :1]).expand(-1, -1, zeros.shape[1])
        visible = torch.cat([visible[:, :, :length], seen_prefix, visible[:, :, length:]], 2)
        current.set_positions(own, torch.cat([positions, zeros, own], 1), visible)
        with embedded(self.target.model, masks.repeat(anchors.shape[1], 1), 0):
            logits = self.target.run(current, torch.zeros_like(own))  # embeddings of these tokens are replaced
        return [first, *logits.unflatten(1, (-1, len(masks))).unbind(2)]

    @torch.no_grad()
    def _read(self, seen: TeacherBatch) -> tuple[TrainingPass, Tensor]:
        """Return a pass in which the target has processed the texts, and the positions of their rows, int64 [B, T]."""
        current = TrainingPass([layer.window for layer in self.target.layers])
        places = torch.arange(seen.tokens.shape[1], device=seen.tokens.device)
        positions = self.target.clamp(places).expand(len(seen.tokens), -1)
        current.set_positions(positions, positions, (places <= places[:, None]).expand(len(positions), -1, -1))
        self.target.run(current, seen.tokens, torch.zeros_like(positions[:, :1]))
        return current, positions


class PassStudent(MaskStudent):
    """Trainable mask rows without a prefix."""

    network: Masks

    def rows(self) -> tuple[Tensor, Sequence[Tensor]]:
        return self.network.mask_embeddings, ()


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write new mask rows. Raise RecipeError if the depth needs no mask row."""
    hidden, vocabulary = target_sizes(wanted)
    config = {"hidden_size": hidden, "vocab_size": vocabulary, "base_model_name_or_path": wanted.reference}
    write_head(folder, config, {EMBEDDINGS: mask_rows(wanted)})


def mask_rows(wanted: NewDrafter) -> Tensor:
    """Return new mask rows float32 [L, H], one for every draft except the first, with the mean and standard deviation
    of the target's embedding. Raise RecipeError for a depth of 1."""
    if wanted.depth < 2:
        raise RecipeError(
            f"train.depth: received {wanted.depth}, expected 2 or more: the target predicts the first draft "
            "token itself, and every other one needs a mask row",
            hint="set train.depth to 4",
        )
    table, random = wanted.ends.embed.table.float(), torch.Generator().manual_seed(wanted.seed)
    return table.mean(0) + table.std(0) * torch.randn(wanted.depth - 1, table.shape[1], generator=random)
