"""Log-mel features of samples, as Whisper's: numpy in place of torch, equal to transformers' WhisperFeatureExtractor
within 5e-5 (features are of the order of one)."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Features = NDArray[np.float32]

HIGHEST = 8000.0
"""Frequency in Hz at which the last mel band ends."""

_FLOOR, _RANGE = 1e-10, 8.0
_AT_ONCE = 3000
"""Frames that are transformed together, so that hours take no more memory than their features."""
_LINEAR_MEL, _LINEAR_HZ, _STEP = 15.0, 1000.0, 27.0 / np.log(6.4)
"""Slaney's scale: 15 mels up to 1000 Hz, and a logarithm above."""


def log_mel(samples: Samples, *, sampling_rate: int, window: int, hop: int, mels: int, frames: int) -> Features:
    """Return float32 [mels, frames] for float32 [n] samples in [-1, 1], padded with silence, or cut, to frames * hop.
    window: samples of a frame; hop: samples between two."""
    whole = np.zeros(frames * hop, np.float32)
    whole[: len(samples)] = samples[: len(whole)]
    return long_log_mel(whole, sampling_rate=sampling_rate, window=window, hop=hop, mels=mels, frames=frames)


def long_log_mel(samples: Samples, *, sampling_rate: int, window: int, hop: int, mels: int, frames: int) -> Features:
    """Return float32 [mels, F] for float32 [n] samples of any length, at least `frames` * hop, of which F frames are
    whole."""
    padded = np.pad(samples, window // 2, mode="reflect")
    count, filters = len(samples) // hop, mel_filters(sampling_rate, window, mels)
    parts = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]
    logs = np.empty((mels, count), np.float32)
    for start in range(0, count, _AT_ONCE):
        spectrum = np.fft.rfft(parts[start : min(start + _AT_ONCE, count)] * _hann(window), axis=1)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
        logs[:, start : start + len(power)] = np.log10(np.maximum(power @ filters, _FLOOR)).T
    found: Features = (np.maximum(logs, logs.max() - np.float32(_RANGE)) + np.float32(4.0)) / np.float32(4.0)
    return found


@lru_cache(maxsize=4)
def _hann(window: int) -> NDArray[np.float64]:
    """Return the periodic window of Hann."""
    return 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(window) / window)


@lru_cache(maxsize=4)
def mel_filters(sampling_rate: int, window: int, mels: int) -> NDArray[np.float32]:
    """Return float32 [window // 2 + 1, mels]: the share of each frequency in each mel band, triangles of equal area on
    Slaney's scale from 0 to 8000 Hz."""
    frequencies = np.linspace(0.0, sampling_rate // 2, window // 2 + 1)
    corners = _to_hz(np.linspace(0.0, float(_to_mel(np.array(HIGHEST))), mels + 2))
    widths = np.diff(corners)
    slopes = corners[None, :] - frequencies[:, None]
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * (2.0 / (corners[2:] - corners[:-2]))).astype(np.float32)


def _to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    linear = 3.0 * hz / 200.0
    return np.where(hz >= _LINEAR_HZ, _LINEAR_MEL + np.log(np.maximum(hz, 1.0) / _LINEAR_HZ) * _STEP, linear)


def _to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel >= _LINEAR_MEL, _LINEAR_HZ * np.exp((mel - _LINEAR_MEL) / _STEP), 200.0 * mel / 3.0)
