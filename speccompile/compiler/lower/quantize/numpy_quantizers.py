"""Quantizers of one weight at a time: float32 [K, N] in, quantized numbers and their scales out.

The integers come from onnxruntime: the kernel of its MatMulNBits quantizer, and the functions of its QDQ quantizer.
They need several times the memory of their input, which here is a few columns.
"""

from collections.abc import Iterator
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnxruntime.capi import _pybind_state as ort_kernels
from onnxruntime.quantization.quant_utils import compute_scale_zp_blocked, quantize_nparray

from speccompile.machine.parallel import in_parallel

Floats = NDArray[np.float32]
Numbers = NDArray[np.generic]

INT4, INT8, FP8 = ir.DataType.INT4, ir.DataType.INT8, ir.DataType.FLOAT8E4M3FN

_FP8_LARGEST = np.float32(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)  # 448

_AT_A_TIME = 1 << 22  # elements of a weight


class Blocks(NamedTuple):
    """Inputs of MatMulNBits: numbers uint8 [N, blocks, block_size * bits / 8], scales float32 [N, blocks], and
    zero_points uint8 [N, blocks * bits / 8 rounded up]. A number q stands for (q - zero_point) * scale."""

    numbers: NDArray[np.uint8]
    scales: Floats
    zero_points: NDArray[np.uint8]


def nbits(weight: Floats, bits: int, block_size: int) -> Blocks:
    """Return the blocks of a weight, the last one of a column padded with zeros.

    4 bits have a zero point for every block: they cost no time, and save a sixth of the error. Held-out perplexity of
    the demo in blocks of 32: float32 8.724, without zero points 8.846, with them 8.791, HQQ 8.792, k-quant 8.808; KL
    divergence .0095, .0082, .0073, .0087. 8 bits are symmetric: 128 stands for zero, and scales may be negative.

    The kernel is private to onnxruntime: importing its public wrapper sets up logging for the process.
    """
    rows, columns = weight.shape
    blocks = -(-rows // block_size)
    packed = np.zeros((columns, blocks, block_size * bits // 8), np.uint8)
    found = np.zeros((columns, blocks), np.float32)
    zero_points = np.zeros((columns, -(-blocks * bits // 8)), np.uint8)
    kernel = {4: ort_kernels.quantize_matmul_4bits, 8: ort_kernels.quantize_matmul_8bits}[bits]

    def quantize(part: slice) -> None:
        missing = blocks * block_size - rows
        some = np.ascontiguousarray(np.pad(weight[:, part], ((0, missing), (0, 0))) if missing else weight[:, part])
        kernel(packed[part], some, found[part], zero_points[part], block_size, some.shape[1], rows, bits == 8)

    in_parallel(quantize, _parts(weight))
    return Blocks(packed, found, zero_points)


class Int4(NamedTuple):
    """A weight [K, N] in 4 bits: numbers uint8 [K padded to whole blocks, N], 0 to 15; scales float32 and zero_points
    uint8 [blocks, N]. A number q stands for (q - zero_point) * scale."""

    numbers: NDArray[np.uint8]
    scales: Floats
    zero_points: NDArray[np.uint8]


def int4(weight: Floats, block_size: int) -> Int4:
    """Return the numbers of `nbits`, with the weight's columns as columns."""
    blocks = nbits(weight, 4, block_size)
    columns, count = blocks.scales.shape
    numbers = _halves(blocks.numbers).reshape(columns, -1)
    zero_points = _halves(blocks.zero_points).reshape(columns, -1)[:, :count]
    return Int4(numbers.T, blocks.scales.T, zero_points.T)


def _halves(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Split every byte into its halves, the low one first, on a new last axis."""
    return np.stack([packed & 15, packed >> 4], -1)


def column_factors(scales: Floats) -> Floats:
    """Return a power of two for every column of scales [blocks, N]. Divided by it, scales fit float16 with headroom
    below, so that only rounding to float16 is lost. Multiplying by it is exact."""
    largest = np.abs(scales).max(axis=0)
    exponents = np.floor(np.log2(largest, out=np.zeros_like(largest), where=largest > 0))
    return np.where(largest > 0, np.exp2(exponents - 14), 1).astype(np.float32)


def scales(weight: Floats, kind: ir.DataType, block_size: int) -> Floats:
    """Return scales [K / block_size, N] of blocks along K, for numbers of a kind; symmetric, and positive as TensorRT
    requires.

    They are rounded to float16 before the division by them, so that an engine may store them as float16.
    """
    found = in_parallel(lambda part: _scales(weight[:, part], kind, block_size), _parts(weight))
    return np.concatenate(found, axis=1)


def numbers(weight: Floats, kind: ir.DataType, block_size: int) -> Numbers:
    """Return the numbers [K, N] for `scales`. block_size divides K."""
    found = np.empty(weight.shape, kind.numpy())

    def round_some(part: slice) -> None:
        some = weight[:, part]
        blocks, divisors = _blocks(some, block_size), _scales(some, kind, block_size)[:, None]
        found[:, part] = _rounded(blocks, kind, divisors).reshape(some.shape)

    in_parallel(round_some, _parts(weight))
    return found


def activation_scale(kind: ir.DataType, smallest: float, largest: float) -> Floats:
    """Return the scale [] of a whole activation whose values lie between the two; symmetric."""
    return _scales(np.array([[smallest], [largest]], np.float32), kind, 2).reshape(())


def _scales(weight: Floats, kind: ir.DataType, block_size: int) -> Floats:
    if kind == FP8:
        found = np.abs(_blocks(weight, block_size)).max(axis=1) / _FP8_LARGEST
    else:
        _, found = compute_scale_zp_blocked(weight, kind, axis=0, block_size=block_size, symmetric=True)
    rounded = found.astype(np.float16).astype(np.float32)
    return np.where(rounded > 0, rounded, np.float32(1))  # 1 if all numbers are zero, or nearly


def _rounded(values: Floats, kind: ir.DataType, divisors: Floats) -> Numbers:
    if kind == FP8:
        return np.clip(values / divisors, -_FP8_LARGEST, _FP8_LARGEST).astype(ml_dtypes.float8_e4m3fn)
    found: Numbers = quantize_nparray(kind, values, divisors, 0)
    return found


def _blocks(weight: Floats, block_size: int) -> Floats:
    rows, columns = weight.shape
    return weight.reshape(rows // block_size, block_size, columns)


def _parts(weight: Floats) -> Iterator[slice]:
    """Yield all columns, a few at a time."""
    rows, columns = weight.shape
    step = max(1, _AT_A_TIME // rows)
    return (slice(start, start + step) for start in range(0, columns, step))
