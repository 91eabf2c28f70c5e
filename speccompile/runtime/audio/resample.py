"""Samples at another rate: a windowed sinc, as torchaudio's `sinc_interp_hann` with its defaults."""

from functools import lru_cache
from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.audio.mel import Samples

_ZEROS, _ROLLOFF = 6, 0.99
"""Zero crossings of the sinc on each side, and its border as a share of the lower Nyquist frequency."""

_AT_ONCE = 1 << 16
"""Windows of samples that are weighted together, so that hours take no more memory than their samples."""

_LARGEST_TABLE = 1 << 22
"""Most weights that are kept: two rates without a common divisor, which a file may name, would have billions."""

_BLOCK = 1 << 11
"""New samples whose weights are computed together where none are kept."""


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Return float32 [ceil(n * wanted / rate)] samples, `wanted` a second, of float32 [n] at `rate`."""
    if rate == wanted:
        return samples
    common = gcd(rate, wanted)
    step, phases = rate // common, wanted // common
    if phases * step > _LARGEST_TABLE:
        return _without_table(samples, step, phases)
    kernel, width = _kernel(step, phases)
    padded = np.pad(samples, (width, width + step))
    parts = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[1])[::step]
    pieces = (parts[start : start + _AT_ONCE] @ kernel.T for start in range(0, len(parts), _AT_ONCE))
    found = np.concatenate([piece.reshape(-1) for piece in pieces])
    return np.ascontiguousarray(found[: ceil(phases * len(samples) / step)], np.float32)


@lru_cache(maxsize=4)
def _kernel(step: int, phases: int) -> tuple[NDArray[np.float32], int]:
    """Return float32 [phases, taps]: the weights of the samples around each of `phases` new ones, which lie where
    `step` old ones do; and the number of old samples before the first."""
    border = min(step, phases) * _ROLLOFF
    width = ceil(_ZEROS * step / border)
    places = np.arange(-width, width + step)[None] / step - np.arange(phases)[:, None] / phases
    return _weights(places, border, step), width


def _weights(places: NDArray[np.float64], border: float, step: int) -> NDArray[np.float32]:
    """Return the weights of old samples at these distances from a new one, in `step` old samples."""
    times = np.clip(places * border, -_ZEROS, _ZEROS)
    weights: NDArray[np.float64] = np.sinc(times) * np.cos(times * np.pi / _ZEROS / 2) ** 2 * border / step
    return weights.astype(np.float32)


def _without_table(samples: Samples, step: int, phases: int) -> Samples:
    """Compute the weights of each new sample, of the old ones around it alone."""
    border = min(step, phases) * _ROLLOFF
    width = ceil(_ZEROS * step / border)
    parts = np.lib.stride_tricks.sliding_window_view(np.pad(samples, (width, width + 2)), 2 * width + 2)
    found = np.empty(ceil(phases * len(samples) / step), np.float32)
    for start in range(0, len(found), _BLOCK):
        before, rest = np.divmod(np.arange(start, min(start + _BLOCK, len(found))) * step, phases)
        places = (np.arange(-width, width + 2)[None] - rest[:, None] / phases) / step
        found[start : start + len(before)] = np.einsum("ij,ij->i", parts[before], _weights(places, border, step))
    return found
