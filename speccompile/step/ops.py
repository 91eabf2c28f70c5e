"""The neutral ops, `speccompile::attend`, `commit`, `nucleus` and `draw`, with their meaning in eager torch.

They cross the export untouched and are lowered per backend, ONNX to ONNX (`speccompile.lower`).
"""

import torch
from torch import Tensor

HIDDEN = -1e30
"""Added to a score that must not be seen. Finite: a row that sees nothing stays a number."""


@torch.library.custom_op("speccompile::attend", mutates_args=())
def attend(
    query: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    length: Tensor,
    positions: Tensor,
    bias: Tensor,
    scale: float,
    softcap: float,
    window: int,
) -> Tensor:
    """Attention over one key axis, `[committed rows | in-step rows]`.

    query [B, N, T, D], key_rows [B, G, R, D], value_rows [B, G, R, E], key_cache [B, G, S, D], value_cache
    [B, G, S, E], length int64 [B], positions int64 [B, T], bias [B, 1, T, R] added to the scores of in-step rows.
    Committed row j stands at position j and is seen when j < length and position - j < window (0: no such limit).
    Scores are scaled by `scale`, then, where `softcap` > 0, become softcap * tanh(score / softcap).
    N is a multiple of G: query head n reads key head n // (N / G). Returns [B, N, T, E].
    """
    columns = torch.arange(int(length.max()), device=query.device)
    keys = torch.cat([key_cache[:, :, : len(columns)], key_rows], 2)
    values = torch.cat([value_cache[:, :, : len(columns)], value_rows], 2)
    groups = query.shape[1] // keys.shape[1]
    scores = query @ keys.repeat_interleave(groups, 1).transpose(-1, -2) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    seen = columns < length[:, None, None]
    if window > 0:
        seen = seen & (positions[:, :, None] - columns < window)
    committed = torch.where(seen, 0.0, HIDDEN).to(bias.dtype).expand(bias.shape[0], bias.shape[2], -1)
    scores = scores + torch.cat([committed[:, None], bias], 3)
    return torch.softmax(scores, -1) @ values.repeat_interleave(groups, 1)


@attend.register_fake
def _(
    query: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    length: Tensor,
    positions: Tensor,
    bias: Tensor,
    scale: float,
    softcap: float,
    window: int,
) -> Tensor:
    return query.new_empty((*query.shape[:3], value_rows.shape[3]))


@torch.library.custom_op("speccompile::commit", mutates_args=())
def commit(buffer: Tensor, rows: Tensor, length: Tensor, axis: int) -> Tensor:
    """Write `rows` into `buffer` along `axis`, in batch row b from index length[b] on.

    buffer [B, .., S, ..], rows the same but for R rows along `axis`, length int64 [B] with length + R <= S.
    Returns the new buffer; engines update it in place.
    """
    result = buffer.clone()
    for row, start in enumerate(length.tolist()):
        result[row].narrow(axis - 1, start, rows.shape[axis]).copy_(rows[row])
    return result


@commit.register_fake
def _(buffer: Tensor, rows: Tensor, length: Tensor, axis: int) -> Tensor:
    return torch.empty_like(buffer)


@torch.library.custom_op("speccompile::nucleus", mutates_args=())
def nucleus(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> tuple[Tensor, Tensor]:
    """Which tokens may be chosen: those whose probability reaches a threshold.

    probs float32 [B, R, V], each row adding up to one; top_k int64 [B], 0 for all; top_p, min_p float32 [B]. Top-k
    keeps the k most probable tokens and those as probable as the last of them. Top-p (Holtzman et al. 2020) keeps, of
    the tokens that are left, each before which the more probable ones add up to less than top_p of the sum of all, and
    those as probable as the last of them. Min-p (Nguyen et al. 2024) keeps those with at least min_p of the largest
    probability. Returns the threshold and the mass of the tokens that reach it, float32 [B, R] each; without any limit
    they are 0 and 1.
    """
    ordered = probs.sort(2, descending=True).values
    rank = torch.arange(probs.shape[2], device=probs.device)
    limit = top_k[:, None, None]
    last = ordered.gather(2, (limit - 1).clamp(0, probs.shape[2] - 1).expand(-1, probs.shape[1], -1))
    left = torch.where((limit <= 0) | (ordered >= last), ordered, 0.0)
    above = left.cumsum(2) - left
    share = top_p[:, None, None]
    kept = (left > 0) & ((above < share * left.sum(2, keepdim=True)) | (rank == 0) | (share >= 1))
    threshold = torch.where(kept, left, torch.inf).amin(2)
    threshold = torch.maximum(threshold, min_p[:, None] * ordered[:, :, 0])
    is_limited = (top_k > 0) | (top_p < 1) | (min_p > 0)
    threshold = torch.where(is_limited[:, None], threshold, 0.0)
    mass = torch.where(probs >= threshold[:, :, None], probs, 0.0).sum(2)
    return threshold, torch.where(is_limited[:, None], mass, 1.0)


@nucleus.register_fake
def _(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> tuple[Tensor, Tensor]:
    return probs.new_empty(probs.shape[:2]), probs.new_empty(probs.shape[:2])


@torch.library.custom_op("speccompile::draw", mutates_args=())
def draw(weights: Tensor, threshold: Tensor, uniforms: Tensor) -> Tensor:
    """One token a row, drawn in proportion to the weights that reach a threshold.

    weights float32 [B, R, V], not negative, at least one of a row above zero and at the threshold; threshold float32
    [B, R]; uniforms float32 [B, R] in [0, 1). The token is the first to which the weights add up to more than the
    uniform's share of their sum: equal inputs give equal tokens. Returns int64 [B, R]; never a token of weight zero.
    """
    total = torch.where(weights >= threshold[:, :, None], weights, 0.0).cumsum(2)
    index = (total <= uniforms[:, :, None] * total[:, :, -1:]).long().sum(2)
    return torch.minimum(index, total.argmax(2))  # rounding may carry it past the last


@draw.register_fake
def _(weights: Tensor, threshold: Tensor, uniforms: Tensor) -> Tensor:
    return torch.empty_like(uniforms, dtype=torch.int64)
