"""Drafts judged piece by piece: gradients come with the loss, and nothing as large as all logits is made but them.

A loss reads and writes some twenty tensors of the logits' size. In pieces that stay in a processor's cache this costs a
fraction, and where a vocabulary is large, as much less memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from speccompile.train.losses import DraftLoss

CPU_PIECE, GPU_PIECE = 2**18, 2**27  # logits: 1 MiB lies in a cache of the second level; 0.5 GiB fills a GPU

Judge = Callable[[Tensor, slice], DraftLoss]


class Summed(NamedTuple):
    """total: the weighted sum of the losses, a scalar with a graph; loss, accepted float32 [N], counted bool [N]: as
    `Worth`, without one. best int64 [N]: the drafter's own best token, as its logits have it."""

    total: Tensor
    loss: Tensor
    accepted: Tensor
    counted: Tensor
    best: Tensor


def chunked_loss(logits: Tensor, rows: Tensor, weights: Tensor, judge: Judge) -> Summed:
    """Those rows, int64 [N], different ones, of logits [M, Vd], each with its weight, float32 [N].

    judge: says what some of them are worth, of their logits [n, Vd] and where they stand among the rows.
    """
    return Summed(*_Pieces.apply(logits, rows, weights, judge))


def chunk_rows(logits: Tensor) -> int:
    """How many rows of logits [.., Vd] one piece has."""
    return max(1, (GPU_PIECE if logits.is_cuda else CPU_PIECE) // logits.shape[-1])


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, weights: Tensor, judge: Judge) -> tuple[Tensor, ...]:
        size = chunk_rows(logits)
        gradient = torch.zeros_like(logits) if ctx.needs_input_grad[0] else None
        total, parts = weights.new_zeros(()), []
        for start in range(0, max(1, len(rows)), size):
            piece = slice(start, start + size)
            with torch.set_grad_enabled(gradient is not None):
                own = logits[rows[piece]].detach().requires_grad_(gradient is not None)
                worth = judge(own, piece)
                loss = (worth.loss * weights[piece]).sum()
            if gradient is not None:
                gradient[rows[piece]] = torch.autograd.grad(loss, own)[0]
            total += loss.detach()
            parts.append(
                (worth.loss.detach(), worth.accepted, worth.counted, own.detach().max(-1).indices)
            )  # argmax is three times as slow
        ctx.gradient = gradient
        found = tuple(torch.cat(each) for each in zip(*parts, strict=True))
        ctx.mark_non_differentiable(*found)
        return total, *found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *others: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(upstream), None, None, None
