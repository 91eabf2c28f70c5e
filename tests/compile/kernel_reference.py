"""What the kernels compute, written from what native/kernels/*.h say: sums of quantized numbers in 64-bit integers, and
floats one operation after the other, each rounded once, in the one order that the kernels have.

Nothing here knows vectors, tiles, threads or paths. Where floats are summed over the elements of a row, sixteen lanes
are part of what the kernels promise (sums.h).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]

LANES = 16
TINY = np.float32(1e-30)
HIDDEN = np.float32(-1e30)


def fma(a: Any, b: Any, c: Any) -> Floats:
    """Return a * b + c of float32, rounded once.

    A product of two float32 is exact in float64. The sum is rounded to the one of its two neighbours in float64 that is
    odd (Boldo and Melquiond 2008: 53 >= 24 + 2 bits suffice), from the error that TwoSum gives exactly: so rounding it
    again, to float32, is as good as rounding the exact sum.
    """
    with np.errstate(all="ignore"):
        product, addend = np.broadcast_arrays(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64))
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        bits = total.view(np.int64)
        is_even = np.isfinite(total) & (error != 0) & (bits % 2 == 0)
        odd = bits + np.where(is_even, np.where((error > 0) == (total > 0), 1, -1), 0)
        return odd.view(np.float64).astype(np.float32)


def lanes_sum(lanes: Floats) -> Floats:
    """Return the sum of [.., 16]: eight pairs at a distance of eight, four at four, two at two, and one."""
    while (half := lanes.shape[-1] // 2) > 0:
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def in_lanes(x: Array) -> Floats:
    """Return [.., K] as [.., K / 16, 16], filled up with zeros."""
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % LANES)]
    filled = np.pad(np.asarray(x, np.float32), padding)
    return filled.reshape(*filled.shape[:-1], -1, LANES)


def dot(a: Array, b: Array) -> Floats:
    """Sum over the last axis of a * b, element i into lane i % 16."""
    a, b = np.broadcast_arrays(in_lanes(a), in_lanes(b))
    lanes = np.zeros((*a.shape[:-2], LANES), np.float32)
    for i in range(a.shape[-2]):
        lanes = fma(a[..., i, :], b[..., i, :], lanes)
    return lanes_sum(lanes)


def plain_sum(x: Floats) -> Floats:
    """Sum over the last axis, element i into lane i % 16."""
    parts = in_lanes(x)
    lanes = np.zeros((*parts.shape[:-2], LANES), np.float32)
    for i in range(parts.shape[-2]):
        lanes = lanes + parts[..., i, :]
    return lanes_sum(lanes)


class Rows(NamedTuple):
    """Rows in eight bits: numbers [rows, depth], a multiple of the block; scales [blocks, rows]."""

    numbers: NDArray[np.int64]
    scales: Floats


def quantized(x: Floats, block: int) -> Rows:
    """Quantize rows: 127 stands for the largest magnitude of a block. A row with an infinity or NaN anywhere is NaN in
    every block."""
    filled = np.pad(x, ((0, 0), (0, -x.shape[1] % block))).reshape(len(x), -1, block)
    with np.errstate(all="ignore"):
        largest = np.abs(filled).max(-1)
        finite, used = np.isfinite(largest).all(1), largest >= TINY
        factors = np.where(used, np.float32(127) / largest, np.float32(0))
        scales = np.where(used, largest / np.float32(127), np.float32(0))
        numbers = np.rint(filled * factors[..., None])  # to even
    numbers = np.where((used & finite[:, None])[..., None], numbers, 0).astype(np.int64).reshape(len(x), -1)
    return Rows(numbers, np.where(finite[:, None], scales, np.float32(np.nan)).T)


def biased(y: Floats, bias: Floats | None) -> Floats:
    return y if bias is None else y + bias


def product_int8(x: Floats, weight: Array, scales: Floats, bias: Floats | None) -> Floats:
    """Return the product of quantized rows with a weight of -128 to 127 [K, N], scales [N]."""
    rows = quantized(x, -(-x.shape[1] // 64) * 64)
    sums = rows.numbers[:, : len(weight)] @ weight.astype(np.int64)
    with np.errstate(all="ignore"):
        return biased(sums.astype(np.float32) * (rows.scales.T * scales), bias)


class Blocks(NamedTuple):
    """A weight in four bits: codes, 0 to 15 [K, N]; zero_points, the same, and scales, float16 [blocks, N]; factors
    [N]."""

    codes: Array
    zero_points: Array
    scales: Array
    factors: Floats
    block: int


def product_int4(x: Floats, weight: Blocks, bias: Floats | None) -> Floats:
    rows, depth = quantized(x, weight.block), len(weight.codes)
    totals = np.zeros((len(x), weight.codes.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for i, scales in enumerate(weight.scales.astype(np.float32)):
            part = slice(i * weight.block, min((i + 1) * weight.block, depth))
            # What a column is filled up with meets zeros of x.
            numbers = weight.codes[part].astype(np.int64) - weight.zero_points[i]
            sums = rows.numbers[:, part] @ numbers
            assert np.abs(sums).max() < 1 << 24
            totals = fma(sums.astype(np.float32), scales * rows.scales[i][:, None], totals)
        return biased(totals * weight.factors, bias)


class Codes(NamedTuple):
    """A weight in codes [K, N], zero points taken off: (codes * scales + offsets) of each block [K / block, N]."""

    codes: Array
    scales: Floats
    offsets: Floats | None


def product_codes(x: Floats, weight: Codes, bias: Floats | None) -> Floats:
    block = len(weight.codes) // len(weight.scales)
    rows, totals = quantized(x, block), np.zeros((len(x), weight.codes.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for i, scales in enumerate(weight.scales):
            part, own = slice(i * block, (i + 1) * block), rows.scales[i][:, None]
            sums = rows.numbers[:, part] @ weight.codes[part]
            totals = fma(sums.astype(np.float32), scales * own, totals)
            if weight.offsets is not None:
                row_sums = rows.numbers[:, part].sum(1, dtype=np.int64).astype(np.float32)[:, None]
                totals = fma(weight.offsets[i], row_sums * own, totals)
        return biased(totals, bias)


def product_floats(x: Floats, weight: Floats, bias: Floats | None) -> Floats:
    """Return products, added in the order of the weight's rows."""
    totals = np.zeros((len(x), weight.shape[1]), np.float32)
    for k in range(len(weight)):
        totals = fma(x[:, k, None], weight[k], totals)
    with np.errstate(all="ignore"):
        return biased(totals, bias)


def exponential(x: Floats) -> Floats:
    """Return expf as in functions.h, by Cephes."""
    coefficients = (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
    low, high, *rest = np.array([-87, 89, 1.44269504088896341, 0.693359375, -2.12194440e-4, *coefficients], np.float32)
    log2_e, first, second, y, *others = rest
    with np.errstate(all="ignore"):
        bounded = np.minimum(np.maximum(x, low), high)
        n = np.rint(bounded * log2_e)
        r = fma(-n, second, fma(-n, first, bounded))
        for coefficient in others:
            y = fma(y, r, coefficient)
        y = fma(y, r * r, r) + np.float32(1)
        half = np.rint(n * np.float32(0.5))
        return np.where(x < low, np.float32(0), y * _power_of_two(half) * _power_of_two(n - half)).astype(np.float32)


def _power_of_two(n: Floats) -> Floats:
    return np.ldexp(np.float32(1), np.nan_to_num(n).astype(np.int32))


def tangent(x: Floats) -> Floats:
    """Return what functions.h computes: Cephes' tanhf."""
    y, *others = np.array(
        [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1], np.float32
    )
    one, two = np.float32(1), np.float32(2)
    with np.errstate(all="ignore"):
        z, magnitude = x * x, np.abs(x)
        for coefficient in others:
            y = fma(y, z, coefficient)
        large = one - two / (exponential(two * magnitude) + one)
        return np.where(magnitude < np.float32(0.625), fma(y * z, x, x), np.where(x < 0, -large, large))


def logistic(x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.float32(1) / (np.float32(1) + exponential(np.float32(0) - x))


def silu(x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return x * logistic(x)


def gelu_tanh(x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        u = np.float32(0.797884560802865) * fma(np.float32(0.044715), x * x * x, x)
        return x * logistic(np.float32(2) * u)


def normalized(x: Floats, weight: Floats, bias: Floats | None, epsilon: float, *, subtracts_mean: bool) -> Floats:
    """Return rows of the last axis: (x - mean) * scale * weight + bias, in this order; the mean is 0 where it stays."""
    width = np.float32(x.shape[-1])
    with np.errstate(all="ignore"):
        centred = x - (plain_sum(x) / width)[..., None] if subtracts_mean else x
        factor = np.float32(1) / np.sqrt(dot(centred, centred) / width + np.float32(epsilon))
        return biased(centred * factor[..., None] * weight, bias)


def turned(x: Floats, cosines: Floats, sines: Floats, *, interleaved: bool) -> Floats:
    """Rotate heads [B, T, N, D]; cosines and sines [B, T, turned / 2]."""
    half, y = cosines.shape[-1], x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    cosine, sine = cosines[:, :, None], sines[:, :, None]
    with np.errstate(all="ignore"):
        y[..., first] = x[..., first] * cosine - x[..., second] * sine
        y[..., second] = x[..., second] * cosine + x[..., first] * sine
    return y


def attend(
    query: Floats, key_rows: Floats, value_rows: Floats, key_cache: Floats, value_cache: Floats, length: Array,
    positions: Array, bias: Floats, sinks: Floats | None = None, *, scale: float, softcap: float, window: int,
    is_latent: bool = False, scales: tuple[Floats, Floats, Floats, Floats] | None = None,
) -> Floats:  # fmt: skip
    """Attend, with the shapes in native/operators/attend.h. A query sees the committed rows of its window, then
    those in-step rows that its bias does not hide, in this order. scales: of codes, in the order of rows and caches: a
    key's multiplies its score, a value's its weight, after the weights are summed."""
    batch, tokens = query.shape[:2]
    groups, width = key_rows.shape[1], key_rows.shape[3]
    queries = query.reshape(batch, tokens, groups, -1, 1, width + value_rows.shape[3] * is_latent)
    context = np.zeros((*queries.shape[:4], (key_rows if is_latent else value_rows).shape[3]), np.float32)
    sink = None if sinks is None else sinks.reshape(groups, -1, 1)
    for b, t in np.ndindex(batch, tokens):
        begin = max(0, int(positions[b, t]) - window + 1) if window else 0
        committed = slice(min(begin, length[b]), length[b])
        seen = np.flatnonzero(~(bias[b, 0, t] <= HIDDEN / 2))
        keys = np.concatenate([key_cache[b, :, committed], key_rows[b][:, seen]], 1)
        values = np.concatenate([value_cache[b, :, committed], value_rows[b][:, seen]], 1)
        if keys.shape[1] == 0:
            continue
        with np.errstate(all="ignore"):
            scores = dot(queries[b, t, ..., :width], keys[:, None]) * np.float32(scale)  # [groups, heads of one, seen]
            if is_latent:
                scores = scores + dot(queries[b, t, ..., width:], values[:, None]) * np.float32(scale)
                values = keys
            if scales is not None:
                key_scales, value_scales = (
                    np.concatenate([scales[place + 2][b, :, committed, 0], scales[place][b, :, seen, 0].T], 1)[:, None]
                    for place in (0, 1)
                )
                scores = scores * key_scales
            if softcap > 0:
                scores = np.float32(softcap) * tangent(scores / np.float32(softcap))
            scores[..., scores.shape[-1] - len(seen) :] += bias[b, 0, t, seen]
            largest = scores.max(-1, keepdims=True)
            largest = largest if sink is None else np.maximum(largest, sink)
            weights = exponential(scores - largest)
            total = plain_sum(weights)[..., None] + (0 if sink is None else exponential(sink - largest))
            weights = weights if scales is None else weights * value_scales
            for i in range(values.shape[1]):
                context[b, t] = fma(weights[..., i, None], values[:, None, i], context[b, t])
            context[b, t] *= np.float32(1) / total
    return context.reshape(batch, tokens, -1)


def convolve(rows: Floats, state: Floats, taps: Floats, bias: Floats, *, is_silu: bool) -> Floats:
    """Convolve, with the shapes of `Convolve` in native/operators/states.h."""
    behind, y = np.concatenate([state, rows], 2), np.zeros_like(rows)
    for place, tap in enumerate(taps):
        y = fma(behind[:, :, place : place + rows.shape[2]], tap, y)
    return silu(y + bias) if is_silu else y + bias


def recur(
    query: Floats, key: Floats, value: Floats, decay: Floats, state: Floats, length: Array, count: Array,
    beta: Floats | None = None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return the result at every token and the last state, with the shapes of `Recur` in native/operators/states.h."""
    shared = value.shape[1] // key.shape[1]
    queries, keys = query.repeat(shared, 1), key.repeat(shared, 1)
    context, updated = np.zeros_like(value), state.copy()
    channel_sum = _in_lanes_sum if value.shape[3] == 1 else _in_chains_sum
    with np.errstate(all="ignore"):
        current = np.where((length > 0)[:, None, None, None], state, np.float32(0))
        for t in range(value.shape[2]):
            column, update = keys[:, :, t, :, None], value[:, :, t]
            current = current * exponential(decay[:, :, t])[..., None]
            if beta is not None:
                update = (update - channel_sum(column, current)) * beta[:, :, t]
            current = fma(column, update[:, :, None], current)
            context[:, :, t] = channel_sum(queries[:, :, t, :, None], current)
            updated = np.where((count > t)[:, None, None, None], current, updated)
    return context, updated


def _in_chains_sum(factors: Floats, state: Floats) -> Floats:
    """Return the sum over the channels of a key [.., K, V]: four partial ones, of which two pairs are added."""
    chains = [np.zeros((*state.shape[:-2], state.shape[-1]), np.float32) for _ in range(4)]
    for i in range(state.shape[-2]):
        chains[i % 4] = fma(factors[..., i, :], state[..., i, :], chains[i % 4])
    return (chains[0] + chains[1]) + (chains[2] + chains[3])


def _in_lanes_sum(factors: Floats, state: Floats) -> Floats:
    return dot(factors[..., 0], state[..., 0])[..., None]
