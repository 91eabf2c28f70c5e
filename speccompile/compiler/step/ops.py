"""The neutral ops, `speccompile::attend`, `commit`, `quantize`, `convolve`, `shift`, `recur`, `advance`, `low_rank`,
`allow`, `nucleus` and `draw`, with their meaning in eager torch. `adjust`: `logit_ops`.

They cross the export untouched and are lowered per backend, ONNX to ONNX (`speccompile.compiler.lower`).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

HIDDEN = -1e30
"""Added to a score that must not be seen. Finite: a row that sees nothing gives no NaN."""


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
    sinks: Tensor | None = None,
    is_latent: bool = False,
    is_ring: bool = False,
) -> Tensor:
    """Attend over one key axis, `[committed rows | in-step rows]`.

    query [B, N, T, D], key_rows [B, G, R, D], value_rows [B, G, R, E], key_cache [B, G, S, D], value_cache
    [B, G, S, E], length int64 [B], positions int64 [B, T], bias [B, 1, T, R] added to the scores of in-step rows.
    Committed row j stands at position j and is seen when j < length and position - j < window (0: no such limit).
    Scores are scaled by `scale`, then, where `softcap` > 0, become softcap * tanh(score / softcap).
    N is a multiple of G: query head n reads key head n // (N / G). Returns [B, N, T, E].

    sinks [N] (gpt-oss): one additional score for every query of a head, neither scaled nor capped, for a row whose
    value is zero. is_latent (absorbed latent attention, DeepSeek-V2, section 2.1): a key is the row of keys followed by
    the row of values, its value is the row of keys; query [B, N, T, D + E], returns [B, N, T, D].

    is_ring: position p stands in row p mod S, and the last S positions before length are there. Keys are still read in
    the order of their positions, so that a ring gives the bits of a cache that holds all of them.
    """
    columns, (key_cache, value_cache) = _committed([key_cache, value_cache], length, is_ring=is_ring)
    keys, values = torch.cat([key_cache, key_rows], 2), torch.cat([value_cache, value_rows], 2)
    if is_latent:
        keys, values = torch.cat([keys, values], 3), keys
    groups = query.shape[1] // keys.shape[1]
    scores = query @ keys.repeat_interleave(groups, 1).transpose(-1, -2) * scale
    seen = columns < length[:, None, None]
    if window > 0:
        seen = seen & (positions[:, :, None] - columns < window)
    committed = torch.where(seen, 0.0, HIDDEN).to(bias.dtype).expand(bias.shape[0], bias.shape[2], -1)
    weights = shares(scores, torch.cat([committed[:, None], bias], 3), softcap, sinks)
    return weights @ values.repeat_interleave(groups, 1)


def _committed(caches: list[Tensor], length: Tensor, *, is_ring: bool) -> tuple[Tensor, list[Tensor]]:
    """Return the positions of committed rows, int64 [1, 1, n] or [B, 1, n], and these rows of each cache [B, G, S, D],
    in the order of the positions."""
    most = int(length.max())
    columns = torch.arange(most, device=length.device)[None, None]
    if not is_ring:
        return columns, [cache[:, :, :most] for cache in caches]
    size = caches[0].shape[2]
    columns = columns[..., :size] + (length - size).clamp(min=0)[:, None, None]
    rows = (columns % size)[..., None]
    return columns, [cache.gather(2, rows.expand(-1, cache.shape[1], -1, cache.shape[3])) for cache in caches]


def shares(scores: Tensor, bias: Tensor, softcap: float, sinks: Tensor | None) -> Tensor:
    """Return the attention weights of all rows, from scaled scores [B, N, T, R], as `attend` says. bias: broadcasts."""
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + bias
    if sinks is None:
        return torch.softmax(scores, -1)
    sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat([scores, sink], 3), -1)[..., :-1]


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
    sinks: Tensor | None = None,
    is_latent: bool = False,
    is_ring: bool = False,
) -> Tensor:
    return query.new_empty((*query.shape[:3], (key_rows if is_latent else value_rows).shape[3]))


@torch.library.custom_op("speccompile::commit", mutates_args=())
def commit(buffer: Tensor, rows: Tensor, length: Tensor, axis: int, is_ring: bool = False) -> Tensor:
    """Write `rows` into `buffer` along `axis`, in batch row b from index length[b] on.

    buffer [B, .., S, ..], rows the same but for R rows along `axis`, length int64 [B] with length + R <= S. is_ring:
    from index length[b] mod S on, and at the end of the buffer from its begin; R <= S. Returns the new buffer; engines
    update it in place.
    """
    result, size = buffer.clone(), buffer.shape[axis]
    places = torch.arange(rows.shape[axis], device=rows.device)
    for row, start in enumerate(length.tolist()):
        if is_ring:
            result[row].index_copy_(axis - 1, (places + start) % size, rows[row])
        else:
            result[row].narrow(axis - 1, start, rows.shape[axis]).copy_(rows[row])
    return result


@commit.register_fake
def _(buffer: Tensor, rows: Tensor, length: Tensor, axis: int, is_ring: bool = False) -> Tensor:
    return torch.empty_like(buffer)


@torch.library.custom_op("speccompile::quantize", mutates_args=())
def quantize(rows: Tensor, bits: int = 8) -> Tensor:
    """Return rows float32 [B, G, R, D] as an int8 cache holds them: code * scale; of 4 bits code * scale + least.

    A row of a head has its own scale and one value in every window: scale = max |x| / 127, code = x / scale, half to
    even; 0 where the scale is 0. In 4 bits scale = (max x - least) / 15, code = (x - least) / scale, least = min x.
    """
    if bits == 4:
        least, most = rows.amin(3, keepdim=True), rows.amax(3, keepdim=True)
        step = (most - least) / 15
        return ((rows - least) / torch.where(step == 0, 1.0, step)).round().clamp(0, 15) * step + least
    scale = rows.abs().amax(3, keepdim=True) / 127
    return (rows / torch.where(scale == 0, 1.0, scale)).round().clamp(-127, 127) * scale


@quantize.register_fake
def _(rows: Tensor, bits: int = 8) -> Tensor:
    return torch.empty_like(rows)


@torch.library.custom_op("speccompile::round_fp8", mutates_args=())
def round_fp8(rows: Tensor) -> Tensor:
    """Return rows as an fp8 cache holds them: in E4M3, halves to even; larger magnitudes become 448."""
    return rows.clamp(-448, 448).to(torch.float8_e4m3fn).to(rows.dtype)


@round_fp8.register_fake
def _(rows: Tensor) -> Tensor:
    return torch.empty_like(rows)


@torch.library.custom_op("speccompile::convolve", mutates_args=())
def convolve(rows: Tensor, state: Tensor, weight: Tensor) -> Tensor:
    """Convolve every channel separately and causally, over `[state | rows]`.

    rows [B, 1, T, C], state [B, 1, K - 1, C] the rows before them, weight [C, K], its last column for the row itself.
    Returns [B, 1, T, C]. The products are added one after the other, the oldest first, for any T.
    """
    behind = torch.cat([state, rows], 2)
    result = torch.zeros_like(rows)
    for place in range(weight.shape[1]):
        result = result + behind[:, :, place : place + rows.shape[2]] * weight[:, place]
    return result


@convolve.register_fake
def _(rows: Tensor, state: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(rows)


@torch.library.custom_op("speccompile::shift", mutates_args=())
def shift(rows: Tensor, state: Tensor, length: Tensor, count: Tensor) -> Tensor:
    """Return the state of a convolution after the first `count` int64 [B] rows of [B, 1, T, C]; unchanged where it is
    0.

    state [B, 1, K - 1, C], length int64 [B]: where it is 0, the state counts as zeros. Returns the last rows of `[state
    | first count rows]`; engines update it in place.
    """
    kept, channels = state.shape[2:]
    index = (count[:, None] + torch.arange(kept, device=count.device))[:, None, :, None]
    moved = torch.cat([_begun(state, length), rows], 2).gather(2, index.expand(-1, 1, -1, channels))
    return torch.where((count > 0)[:, None, None, None], moved, state)


@shift.register_fake
def _(rows: Tensor, state: Tensor, length: Tensor, count: Tensor) -> Tensor:
    return torch.empty_like(state)


@torch.library.custom_op("speccompile::recur", mutates_args=())
def recur(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor, length: Tensor
) -> Tensor:
    """Return the result of a linear recurrence at every token, computed token by token in one order, for any T.

    query, key [B, G, T, K], value [B, H, T, V], decay [B, H, T, 1] or [B, H, T, K], the logarithm, beta [B, H, T, 1],
    state float32 [B, H, K, V], length int64 [B]: where it is 0, there is no earlier token, and the state counts as
    zeros. H is a multiple of G: head h reads key head h // (H / G). For each token t

        S = exp(decay_t) S;  S = S + key_t (x) u_t;  context_t = query_t S

    where u_t = value_t or, with a beta, the gated delta rule's beta_t (value_t - key_t S), Yang et al. 2024
    (arXiv 2412.06464). Mamba 2 (2405.21060) is the first form; a decay of every key channel makes it Kimi's delta rule
    (2510.26692), or Mamba's scan (2312.00752), whose heads are channels of one value each. Returns [B, H, T, V].
    """
    queries = _spread(query, value.shape[1]).float()
    steps = _steps(key, value, decay, beta, _begun(state, length))
    contexts = [torch.einsum("bhk,bhkv->bhv", queries[:, :, step], current) for step, current in steps]
    return torch.stack(contexts, 2).to(value.dtype)


@recur.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor, length: Tensor
) -> Tensor:
    return torch.empty_like(value)


@torch.library.custom_op("speccompile::advance", mutates_args=())
def advance(
    key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor, length: Tensor, count: Tensor
) -> Tensor:
    """Return the state of a recurrence after the first `count` int64 [B] tokens; unchanged where it is 0.

    All other arguments as in `recur`, computed in the same order. Returns float32 [B, H, K, V]; engines update it in
    place.
    """
    result = state.clone()
    for step, current in _steps(key, value, decay, beta, _begun(state, length)):
        result = torch.where((count > step)[:, None, None, None], current, result)
    return result


@advance.register_fake
def _(
    key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor, length: Tensor, count: Tensor
) -> Tensor:
    return torch.empty_like(state)


def _steps(
    key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """Yield (token index, state float32 [B, H, K, V] after it)."""
    keys, values, gates = _spread(key, value.shape[1]).float(), value.float(), decay.float().exp()
    for step in range(value.shape[2]):
        column, update = keys[:, :, step, :, None], values[:, :, step, None, :]
        state = state * gates[:, :, step, :, None]
        if beta is not None:
            update = (update - (column * state).sum(2, keepdim=True)) * beta[:, :, step, None, :].float()
        state = state + column * update
        yield step, state


def _begun(state: Tensor, length: Tensor) -> Tensor:
    return torch.where((length > 0)[:, None, None, None], state, 0.0)


def _spread(rows: Tensor, heads: int) -> Tensor:
    return rows.repeat_interleave(heads // rows.shape[1], 1)


@torch.library.custom_op("speccompile::low_rank", mutates_args=())
def low_rank(y: Tensor, x: Tensor, a: Tensor, b: Tensor, adapter: Tensor) -> Tensor:
    """Return a layer's result y [B, T, N] for x [B, T, K] with the low-rank change of each row's adapter: y + (x A^T) B
    (LoRA: Hu et al. 2021).

    a float32 [S, r, K], b float32 [S, r, N]: matrices of all slots; adapter int64 [B]: slot of each row. Slot 0 changes
    nothing: its row of the result is y, bit for bit.
    """
    change = x.float() @ a[adapter].transpose(1, 2) @ b[adapter]
    return torch.where((adapter > 0)[:, None, None], y + change.to(y.dtype), y)


@low_rank.register_fake
def _(y: Tensor, x: Tensor, a: Tensor, b: Tensor, adapter: Tensor) -> Tensor:
    return torch.empty_like(y)


@torch.library.custom_op("speccompile::allow", mutates_args=())
def allow(logits: Tensor, allowed: Tensor) -> Tensor:
    """Return logits float32 [B, R, V] where `allowed`, bool [B, R, V] or [B, R, 1], is true, else HIDDEN.

    An op, because the trace cannot keep open whether an axis is 1 or V. HIDDEN has no share in a softmax. It is finite,
    so that a row without any allowed token gives some token, and no NaN.
    """
    return torch.where(allowed, logits, HIDDEN)


@allow.register_fake
def _(logits: Tensor, allowed: Tensor) -> Tensor:
    return torch.empty_like(logits)


@torch.library.custom_op("speccompile::nucleus", mutates_args=())
def nucleus(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probability threshold that a token must reach to be chosen, and the mass of these tokens.

    probs float32 [B, R, V], each row adding up to one; top_k int64 [B], 0 for all; top_p, min_p float32 [B]. Top-k
    keeps the k most probable tokens and those as probable as the last of them. Top-p (Holtzman et al. 2020) keeps,
    among the remaining tokens, each before which the more probable ones add up to less than top_p of the sum of all,
    and those as probable as the last of them. Min-p (Nguyen et al. 2024) keeps those with at least min_p of the largest
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
    """Draw one token per row, in proportion to the weights that reach a threshold.

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
