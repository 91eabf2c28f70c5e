"""Attention over repeated or reordered heads of the cache."""

import torch
from torch import Tensor


def grouped_heads(query: Tensor, groups: int, times: int) -> Tensor:
    """Put query heads of [B, N, T, D] that read one key head next to each other.

    The keys are `groups` heads, repeated whole `times` times (JetMoE: once for each expert of a token).
    """
    parts = query.unflatten(1, (times, groups, -1))
    return parts.transpose(1, 2).flatten(1, 3)


def repeated_heads(context: Tensor, groups: int, times: int) -> Tensor:
    """Return the heads to the model's order: the inverse of `grouped_heads`."""
    parts = context.unflatten(1, (groups, times, -1))
    return parts.transpose(1, 2).flatten(1, 3)


def of_half(own: Tensor, other: Tensor, half: int) -> Tensor:
    """Return one of two attentions of a layer, each over half of the value heads, repeated twice (differential
    attention, arXiv 2410.05258, as in DiffLlama). half: 0 or 1.

    own [B, N, T, E]: result of each query head with the values of its key head; other: with the values half of the
    heads away. For half 0, the first half of the query heads reads `own` and the second half `other`; for half 1 vice
    versa.
    """
    firsts, lasts = (own, other) if half == 0 else (other, own)
    count = own.shape[1] // 2
    return torch.cat([firsts[:, :count], lasts[:, count:]], 1)
