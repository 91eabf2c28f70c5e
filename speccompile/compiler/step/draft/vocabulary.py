"""A drafter's own vocabulary, a subset of the target's."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Vocabulary(nn.Module, ABC):
    """Tokens of the target among which a drafter chooses. size: their number, Vd."""

    size: int

    @abstractmethod
    def of_target(self, drafts: Tensor) -> Tensor:
        """Map draft tokens int64 to the target's tokens."""

    @abstractmethod
    def of_drafts(self, tokens: Tensor) -> Tensor:
        """Map the target's tokens int64 to draft tokens; Vd for those that the drafter does not have."""


class ListedTokens(Vocabulary):
    """Draft token i is the target's token ids[i]."""

    def __init__(self, ids: Tensor, target_size: int) -> None:
        """ids int64 [Vd], distinct and below `target_size`."""
        super().__init__()
        self.size = len(ids)
        self.register_buffer("ids", ids.long(), persistent=False)
        places = torch.full((target_size,), self.size, dtype=torch.int64)
        places[ids] = torch.arange(self.size)
        self.register_buffer("places", places, persistent=False)

    def of_target(self, drafts: Tensor) -> Tensor:
        return self.ids[drafts]

    def of_drafts(self, tokens: Tensor) -> Tensor:
        return self.places[tokens]


class FirstTokens(Vocabulary):
    """The target's first tokens: the drafter's vocabulary has less padding than the target's."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def of_target(self, drafts: Tensor) -> Tensor:
        return drafts

    def of_drafts(self, tokens: Tensor) -> Tensor:
        return tokens.clamp(max=self.size)
