"""Sampling in torch: temperature, biases and penalties, and the distribution of a drafter's candidates.

The order is that of vLLM and of transformers' logits processors: biases, repetition penalty, frequency and presence
penalties, temperature, top-k, top-p, min-p. For the
target, the neutral ops `nucleus` and `draw` apply top-k and the later ones over the whole vocabulary. A drafter draws
among its C best tokens only, which changes the number of accepted drafts and not the output.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from speccompile.compiler.step.logit_ops import adjust


class Settings(NamedTuple):
    """Sampling settings of each batch slot: see `contract`. history int64 [B, H]; top_k int64 [B]; all other fields
    float32 [B]."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    repetition_penalty: Tensor
    history: Tensor


class Adjustments(NamedTuple):
    """Additions of the host to the logits of each row: see `contract`. adjusted int64 [B, R, K], tokens; biases and
    penalties float32 [B, R, K], added before and after the repetition penalty."""

    adjusted: Tensor
    biases: Tensor
    penalties: Tensor


def apply_temperature_and_penalty(
    logits: Tensor, settings: Settings, seen: Tensor, adjustments: Adjustments | None = None
) -> Tensor:
    """Adjust and penalize float32 [B, R, V] logits and divide them by the temperature, which is 1 in greedy batch
    slots.

    seen int64 [B, R, H]: tokens before each row, in any order and any number of times.
    """
    temperature = settings.temperature
    factor = torch.where(temperature > 0, 1 / temperature.clamp(min=1e-6), 1.0)[:, None, None]
    # The temperature comes first, so that the adjustments write into its result, and copy no logits.
    heated = logits * factor
    if adjustments is not None:
        heated = adjust(heated, adjustments.adjusted, adjustments.biases * factor)
    heated = _penalize_repetition(heated, settings, seen)
    if adjustments is not None:
        heated = adjust(heated, adjustments.adjusted, adjustments.penalties * factor)
    return heated


def _penalize_repetition(heated: Tensor, settings: Settings, seen: Tensor) -> Tensor:
    penalty = settings.repetition_penalty[:, None, None]
    score = heated.gather(2, seen)
    # Duplicates in `seen` write equal values, so the order of the writes does not matter.
    return heated.scatter(2, seen, torch.where(score < 0, score * penalty, score / penalty))


class Candidates(NamedTuple):
    """Candidates of each row. ids int64 [B, R, C], best first, and probs float32 [B, R, C], which sum to one."""

    ids: Tensor
    probs: Tensor


def candidates(heated: Tensor, count: int, settings: Settings) -> Candidates:
    """Return the distribution over the `count` best of scaled logits [B, R, V], after top-k, top-p and min-p."""
    scores, ids = heated.topk(count, dim=2)
    weights = torch.exp(scores - scores[:, :, :1])
    rank = torch.arange(count, device=heated.device)
    top_k = settings.top_k[:, None, None]
    weights = torch.where((rank < top_k) | (top_k <= 0), weights, 0.0)
    above = weights.cumsum(2) - weights
    kept = (above < settings.top_p[:, None, None] * weights.sum(2, keepdim=True)) | (rank == 0)
    weights = torch.where(kept & (weights >= settings.min_p[:, None, None]), weights, 0.0)
    return Candidates(ids, weights / weights.sum(2, keepdim=True))


def draw_candidate(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw indices int64 [..] of weights [.., C] by uniforms [..]; never one of weight zero, unless all are zero."""
    total = weights.cumsum(-1)
    index = (total <= uniform[..., None] * total[..., -1:]).long().sum(-1)
    return torch.minimum(index, total.argmax(-1))  # rounding may carry the index past the last
