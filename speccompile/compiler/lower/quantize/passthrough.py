"""Pass pre-quantized 4-bit weights through: keep values and zero points if the block size divides the group size.

So nothing is quantized twice. A scale is kept as well, as precisely as its format allows.
"""

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.lower.quantize import numpy_quantizers
from speccompile.compiler.lower.quantize.linear import Weight
from speccompile.compiler.lower.quantize.numpy_quantizers import Blocks
from speccompile.compiler.lower.quantize.numpy_quantizers import Int4 as Quantized
from speccompile.compiler.weights.stored import Int4

_MIDDLE = 8
"""The zero point of symmetric numbers from 0 to 15."""


def int4_or_passthrough(weight: Weight, part: slice, block_size: int) -> Quantized:
    """Return columns of a weight [K, N] in 4 bits, quantized if the checkpoint has floats or groups that do not fit."""
    source = weight.source_weight
    found = _fitting(source.int4_columns(part), block_size)
    return found if found is not None else numpy_quantizers.int4(source.columns(part), block_size)


def nbits_or_passthrough(weight: Weight, bits: int, block_size: int) -> Blocks:
    """Return a whole weight in 4 bits in the layout of `numpy_quantizers.nbits`."""
    source, whole = weight.source_weight, slice(0, weight.shape[1])
    found = _fitting(source.int4_columns(whole), block_size) if bits == 4 else None
    if found is None:
        return numpy_quantizers.nbits(source.columns(whole), bits, block_size)
    numbers = found.numbers.T.reshape(weight.shape[1], -1, block_size)
    zero_points = np.pad(found.zero_points.T, ((0, 0), (0, len(found.scales) % 2)))
    return Blocks(_pairs(numbers), np.ascontiguousarray(found.scales.T), _pairs(zero_points))


def symmetric(weight: Weight, block_size: int) -> tuple[NDArray[np.int8], numpy_quantizers.Floats] | None:
    """Return a weight in 4 bits from -8 to 7 without zero points, int8 [K, N], and its scales [K / block_size, N],
    which float16 can hold; None if the checkpoint does not store it so."""
    found = _fitting(weight.source_weight.int4_columns(slice(0, weight.shape[1])), block_size)
    if found is None or (found.zero_points != _MIDDLE).any():
        return None
    low = found.scales.astype(np.float16).astype(np.float32)
    if (low != found.scales).any() or (low <= 0).any():
        return None
    return found.numbers.astype(np.int8) - np.int8(_MIDDLE), found.scales


def _fitting(stored: Int4 | None, block_size: int) -> Quantized | None:
    """Return the numbers in blocks that divide the groups, K padded with numbers that stand for zero; else None."""
    if stored is None:
        return None
    depth, groups = len(stored.numbers), len(stored.scales)
    if stored.group_size % block_size and groups > 1:
        return None
    blocks = -(-depth // block_size)
    group = np.arange(blocks) * block_size // stored.group_size
    scales, zero_points = stored.scales[group], stored.zero_points[group]
    missing = blocks * block_size - depth
    numbers = np.concatenate([stored.numbers, zero_points[-1:].repeat(missing, 0)]) if missing else stored.numbers
    return Quantized(numbers, scales, zero_points)


def _pairs(numbers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack numbers from 0 to 15 [.., n] into uint8 [.., n / 2]: two in a byte, the first one low."""
    return np.ascontiguousarray(numbers[..., 0::2] | numbers[..., 1::2] << 4)
