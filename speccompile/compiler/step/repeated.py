"""Layers that attend over other heads than their cache holds: over its heads again, in another order."""

import torch
from torch import Tensor


def grouped_heads(query: Tensor, groups: int, times: int) -> Tensor:
    """[B, N, T, D] -> the same heads, those that read one key head side by side.

    The keys are `groups` heads, repeated whole `times` times (JetMoE: once for each expert of a token).
    """
    parts = query.unflatten(1, (times, groups, -1))
    return parts.transpose(1, 2).flatten(1, 3)


def repeated_heads(context: Tensor, groups: int, times: int) -> Tensor:
    """The inverse of `grouped_heads`."""
    parts = context.unflatten(1, (groups, times, -1))
    return parts.transpose(1, 2).flatten(1, 3)


def of_half(own: Tensor, other: Tensor, half: int) -> Tensor:
    """One of two attentions of a layer, each over half of the heads of values, 0 or 1, repeated twice (differential
    attention, arXiv 2410.05258, as DiffLlama writes it).

    own [B, N, T, E]: what query heads make of the values of their key head; other: of the values half of the heads
    apart. Queries of the first half of the heads find theirs in `own` for the first half, the others in `other`.
    """
    firsts, lasts = (own, other) if half == 0 else (other, own)
    count = own.shape[1] // 2
    return torch.cat([firsts[:, :count], lasts[:, count:]], 1)
