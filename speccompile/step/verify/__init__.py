"""Verification: the target over the window, what of it is accepted, and the commit of the accepted rows."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.step import ops
from speccompile.step.decoder import Decoder
from speccompile.step.verify.accept import accept_greedy


class Verified(NamedTuple):
    """path int64 [B, W + 1], n_path int64 [B], logits float32 [B, R, V], caches as they were given."""

    path: Tensor
    n_path: Tensor
    logits: Tensor
    caches: list[Tensor]


class Verify(nn.Module):
    """One round of the target. Prefill is the same graph: everything is given, nothing is drafted."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, window: Tensor, n_given: Tensor, n_total: Tensor, length: Tensor, logit_rows: Tensor, caches: list[Tensor]
    ) -> Verified:
        """window int64 [B, W]; n_given, n_total, length int64 [B]; logit_rows int64 [R] = 0, 1, ..; see `contract`."""
        places = torch.arange(window.shape[1], device=window.device)  # [W]
        positions = self.decoder.clamp(length[:, None] + places)  # [B, W]
        visible = (places[None, :] <= places[:, None]).expand(window.shape[0], -1, -1)  # a chain: [B, W, W]

        current = self.decoder.begin(caches, length)
        current.look(positions, positions, visible)
        logit_index = (n_given[:, None] - 1 + logit_rows).clamp(min=0, max=window.shape[1] - 1)  # [B, R]
        logits = self.decoder.run(current, window, logit_index)  # [B, R, V]

        n_path, bonus = accept_greedy(window, n_given, n_total, logits.argmax(-1))
        padded = torch.cat([window, bonus], 1)  # [B, W + 1]
        after = torch.arange(padded.shape[1], device=window.device)
        path = torch.where(after == n_path[:, None], bonus, padded)
        # An accepted chain is a prefix of the window: its rows already lie in order.
        committed = [ops.commit(c, r, length, 2) for c, r in zip(caches, current.rows(), strict=True)]
        return Verified(path, n_path, logits, committed)
