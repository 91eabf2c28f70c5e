"""Resize pictures with integers, as Pillow or torch does, bit for bit.

Each output pixel is a sum of input pixels times coefficients, rounded to 8 bits after each of two passes. Pillow's
coefficients have 22 bits, torch's have the largest number that fits 16. So tokens do not depend on the version of
Pillow where a bundle runs.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""A picture: uint8 [height, width, 3]."""

_BITS = 22
_BLOCK = 1 << 17
"""Sums that are made at once."""


def _bilinear(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.abs(x)
    return np.where(x < 1.0, 1.0 - x, 0.0)


def _bicubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bicubic convolution with a = -0.5 (Keys 1981)."""
    x, a = np.abs(x), -0.5
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _sinc(x: NDArray[np.float64]) -> NDArray[np.float64]:
    turned = x * np.pi
    return np.where(x == 0.0, 1.0, np.sin(turned) / np.where(x == 0.0, 1.0, turned))


def _lanczos(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where((x >= -3.0) & (x < 3.0), _sinc(x) * _sinc(x / 3), 0.0)


FILTERS: dict[str, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
"""Name -> filter, and its support in pixels of the smaller picture."""


def resize(image: Pixels, height: int, width: int, resample: str, *, like_torch: bool = False) -> Pixels:
    """Return the picture in another size. resample: one of FILTERS. The first pass is always the horizontal one: newer
    versions of Pillow choose by shape, and the order changes the last bit of some pixels. like_torch: as torch's
    `interpolate(antialias=True)` of uint8 instead."""
    for axis, size in ((1, width), (0, height)):
        if image.shape[axis] != size:
            image = _pass(image, axis, size, resample, like_torch)
    return image


def _pass(image: Pixels, axis: int, size: int, resample: str, like_torch: bool) -> Pixels:
    """Resize along one axis, 0 for the height: a few columns at a time, whose sums stay in a core's cache."""
    places, weights, bits = _coefficients(image.shape[axis], size, resample, like_torch)
    lines = np.ascontiguousarray(image.swapaxes(0, axis)).reshape(image.shape[axis], -1)
    resized = np.empty((size, lines.shape[1]), np.uint8)
    step = max(1, _BLOCK // size)
    for start in range(0, lines.shape[1], step):
        part = np.ascontiguousarray(lines[:, start : start + step])
        total = np.full((size, part.shape[1]), 1 << (bits - 1), np.int32)
        for place, weight in zip(places.T, weights.T, strict=True):
            total += part.take(place, 0) * weight[:, None]
        np.clip(total >> bits, 0, 255, out=resized[:, start : start + step], casting="unsafe")
    found = resized.reshape(size, image.shape[1 - axis], image.shape[2]).swapaxes(0, axis)
    return np.ascontiguousarray(found)


@lru_cache(maxsize=64)
def _coefficients(
    before: int, after: int, resample: str, like_torch: bool
) -> tuple[NDArray[np.intp], NDArray[np.int32], int]:
    """Return the input pixels of each output pixel, and their weights, both [after, n], and the weights' bits."""
    kernel, support = FILTERS[resample]
    scale = before / after
    stretch = max(scale, 1.0)
    support *= stretch
    centers = (np.arange(after) + 0.5) * scale
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centers + support + 0.5).astype(np.int64), before) - first
    steps = np.arange(int(np.ceil(support)) * 2 + 1)
    inside = steps < count[:, None]
    weights = np.where(inside, kernel((steps + first[:, None] - centers[:, None] + 0.5) * (1.0 / stretch)), 0.0)
    total = np.zeros(after)
    for column in weights.T:  # in this order: a sum of numpy's own rounds otherwise
        total = total + column
    weights = weights / np.where(total == 0.0, 1.0, total)[:, None]
    bits = _BITS
    if like_torch:
        bits = next(bits for bits in range(_BITS + 1) if bits == _BITS or 0.5 + weights.max() * (2 << bits) >= 1 << 15)
    scaled = weights * (1 << bits)
    rounded = np.where(weights < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5)).astype(np.int32)
    return np.minimum(first[:, None] + steps, before - 1), rounded, bits
