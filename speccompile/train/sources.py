"""Samples of a target with an encoder: a source, then its answer. The loss mask covers the answer alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

Sources = tuple[Tensor, Tensor]
"""(tokens int64 [B, n], bool [B, n]: False for padding, which is on the right)."""
Texts = tuple[Tensor, Tensor, Tensor]
"""(tokens int64 [B, T], attention mask bool [B, T], loss mask bool [B, T]), as in `TeacherBatch`."""


def split_sources(
    tokens: Tensor, real: Tensor, learnt: Tensor, start: Sequence[int] | Sequence[Sequence[int]]
) -> tuple[Sources, Texts]:
    """Split samples before the first token of the loss mask. Return the sources, and the answers after their start
    tokens. tokens int64 [B, T]; real, learnt bool [B, T]: attention and loss mask; start: the start tokens of every
    answer, or those of each sample."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    lengths = real.sum(1)
    first = torch.where(learnt & real, places, lengths[:, None]).amin(1)
    width = max(int(first.max()), 1)
    is_source = places[:width] < first[:, None]
    size = int((lengths - first).max())
    index = (first[:, None] + places[:size]).clamp(max=tokens.shape[1] - 1)
    is_answer = places[:size] < (lengths - first)[:, None]
    before = tokens.new_tensor(list(start)).expand(len(tokens), -1)
    answers = torch.cat([before, tokens.gather(1, index).masked_fill(~is_answer, 0)], 1)
    shown = torch.ones_like(before, dtype=torch.bool)
    masks = torch.cat([shown, is_answer], 1), torch.cat([~shown, learnt.gather(1, index) & is_answer], 1)
    return (tokens[:, :width].masked_fill(~is_source, 0), is_source), (answers, *masks)
