"""Loss in chunks: the gradient is computed with the loss, and is the only new tensor of the logits' full size.

A loss reads and writes about twenty tensors of the logits' size. Chunks that fit a processor's cache need a fraction of
the time, and, with a large vocabulary, of the memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from speccompile.train.losses import DraftLoss

CPU_PIECE, GPU_PIECE = 2**18, 2**27  # logits: 1 MiB lies in a cache of the second level; 0.5 GiB fills a GPU

ChunkLoss = Callable[[Tensor, slice], DraftLoss]


class Summed(NamedTuple):
    """Loss of N drafts. total: weighted sum of the losses, a scalar with gradient. loss, accepted float32 [N], counted
    bool [N]: as in `DraftLoss`, without gradient. best int64 [N]: index of the drafter's highest logit."""

    total: Tensor
    loss: Tensor
    accepted: Tensor
    counted: Tensor
    best: Tensor


def chunked_loss(logits: Tensor, rows: Tensor, weights: Tensor, loss_of: ChunkLoss) -> Summed:
    """Return the loss over some rows of logits [M, Vd]. rows: int64 [N], distinct; weights: float32 [N].

    loss_of: computes the `DraftLoss` of a chunk from its logits [n, Vd] and its slice of `rows`.
    """
    return Summed(*_Pieces.apply(logits, rows, weights, loss_of))


def chunk_rows(logits: Tensor) -> int:
    """Return the number of rows of logits [.., Vd] in one chunk."""
    return max(1, (GPU_PIECE if logits.is_cuda else CPU_PIECE) // logits.shape[-1])


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, weights: Tensor, loss_of: ChunkLoss) -> tuple[Tensor, ...]:
        size = chunk_rows(logits)
        gradient = torch.zeros_like(logits) if ctx.needs_input_grad[0] else None
        total, parts = weights.new_zeros(()), []
        for start in range(0, max(1, len(rows)), size):
            piece = slice(start, start + size)
            with torch.set_grad_enabled(gradient is not None):
                own = logits[rows[piece]].detach().requires_grad_(gradient is not None)
                worth = loss_of(own, piece)
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
