"""The two neutral ops, `speccompile::attend` and `speccompile::commit`, with their meaning in eager torch.

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
