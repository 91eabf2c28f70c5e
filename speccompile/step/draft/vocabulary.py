"""A drafter's own vocabulary, a part of the target's."""

import torch
from torch import Tensor, nn


class Vocabulary(nn.Module):
    """Draft token i is the target's token ids[i]."""

    def __init__(self, ids: Tensor, target_size: int) -> None:
        """ids int64 [Vd], different ones below `target_size`."""
        super().__init__()
        self.size = len(ids)
        self.register_buffer("ids", ids.long(), persistent=False)
        places = torch.full((target_size,), self.size, dtype=torch.int64)
        places[ids] = torch.arange(self.size)
        self.register_buffer("places", places, persistent=False)

    def of_target(self, drafts: Tensor) -> Tensor:
        """Draft tokens int64 -> the target's tokens."""
        return self.ids[drafts]

    def of_drafts(self, tokens: Tensor) -> Tensor:
        """The target's tokens int64 -> draft tokens; Vd for those that the drafter does not have."""
        return self.places[tokens]
