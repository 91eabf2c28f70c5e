"""P-EAGLE: EAGLE-3's network in one causal pass over the text's rows and a mask row for every draft but the first."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, Drafter
from speccompile.compiler.step.draft.masked import MaskedPairedRound
from speccompile.compiler.step.draft.paired import PairedReading
from speccompile.drafters.context import DrafterContext, paired
from speccompile.drafters.eagle3.drafter import Eagle3Reader
from speccompile.drafters.p_eagle.dialects import MASK
from speccompile.drafters.p_eagle.reading import SWITCH
from speccompile.drafters.weights import TargetEmbeddings, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a chain, or of the best nodes of one pass."""
    reader = load_reader(context, context.drafter.tree.depth - 1)
    reader.fold()
    return paired(context, reader)


def load_reader(context: DrafterContext, masks: int) -> "PEagleReader":
    """Return the network with its weights, before `fold`."""
    return load_head(PEagleReader(context.head, context.shape, context.ends(), masks), context.head)


class PEagleReader(Eagle3Reader):
    """EAGLE-3's network with `masks` rows after the text, whose features are a trained vector for missing tokens."""

    def __init__(self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings, masks: int) -> None:
        super().__init__(head, shape, ends)
        self.masks, self.mask_token = masks, int(head.switches[SWITCH] or 0)
        self.mask_hidden = nn.Parameter(torch.zeros(head.tensors[MASK].shape))

    @torch.no_grad()
    def fold(self) -> None:
        """Compute the mask's row [1, 1, h] from its features: it is constant once the weights are loaded."""
        self.register_buffer("mask_row", self.fuse_mask(), persistent=False)

    def fuse_mask(self) -> Tensor:
        """Return the mask's row [1, 1, h]."""
        return self.fuse(self.mask_hidden.reshape(1, 1, -1))

    def begin(self, accepted: Accepted, states: list[Tensor]) -> PairedReading:
        return PEagleReading(self, accepted, states)


class PEagleReading(MaskedPairedRound):
    """A round of P-EAGLE."""

    reader: PEagleReader

    def masks(self) -> tuple[int, int]:
        return self.reader.masks, self.reader.mask_token

    def mask_rows(self, x: Tensor) -> Tensor:
        """See `MaskedPairedRound.mask_rows`: a constant."""
        return self.reader.mask_row
