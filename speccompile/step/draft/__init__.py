"""Drafters: given the accepted path, propose the next window. One file per family.

A drafter is a module with this interface, which is all that the export and the runtime know of it:

tokens    drafts per round
catch_up  width of its catch-up when decoding; 0 when it keeps no caches of its own
taps      what it reads of the target besides tokens (names of feature outputs); none of these families reads any
states    its buffers: (name, dtype, shape), kept from round to round
forward   (path, n_path, length, catch_up, states) -> Drafted
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn


class State(NamedTuple):
    """A buffer that is kept from round to round and updated in place."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Drafted(NamedTuple):
    """window int64 [B, K + 1]: bonus token, drafts. n_total int64 [B]: 1 + drafts. states as they were given."""

    window: Tensor
    n_total: Tensor
    states: list[Tensor]


class Drafter(nn.Module, ABC):
    """Base of all families; see the module's docstring."""

    tokens: int
    catch_up: int = 0
    taps: tuple[str, ...] = ()

    @abstractmethod
    def states(self) -> list[State]:
        """The buffers, in the order in which `forward` takes and returns them."""

    @abstractmethod
    def forward(self, path: Tensor, n_path: Tensor, length: Tensor, catch_up: Tensor, states: list[Tensor]) -> Drafted:
        """path int64 [B, W + 1]; n_path, length (before this round) int64 [B]; catch_up int64 [C] = 0, 1, .."""
