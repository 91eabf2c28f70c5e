"""Numbers of blocks: [blocks, bytes of one] uint8 -> codes, their scales and offsets, and float32.

The operations and their order are those of the reference, ggml-quants.c, and of `gguf.quants` (which the tests compare
with), so that results are equal in all bits. Layouts: ggml-common.h; d, m: float16; 4-bit numbers: the low halves of
all bytes come before the high ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.checkpoints.gguf.block_types import BY_NAME
from speccompile.compiler.weights.stored import Floats

Bytes = NDArray[np.uint8]


class Parts(NamedTuple):
    """Blocks in parts that share a scale: a number is codes * scales + offsets.

    codes: int8 [blocks, parts, numbers of one]; scales, and offsets or None: float32 [blocks, parts].
    """

    codes: NDArray[np.int8]
    scales: Floats
    offsets: Floats | None = None


IQ4_LEVELS: NDArray[np.int8] = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)  # fmt: skip
"""Levels of IQ4_NL and IQ4_XS."""
MXFP4_LEVELS: NDArray[np.int8] = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the levels of E2M1; minus zero is read as zero, as by llama.cpp."""


def parts_of(data: Bytes, kind: str) -> Parts:
    """Return the parts of the blocks in `data`, uint8 [bytes], of a type of BY_NAME with blocks."""
    return _FORMULAS[kind](data.reshape(-1, BY_NAME[kind].size))


def dequantize(data: Bytes, kind: str) -> Floats:
    """Return float32 [numbers] of the blocks in `data`, as for `parts_of`."""
    codes, scales, offsets = parts_of(data, kind)
    products: Floats = codes.astype(np.float32) * scales[..., None]
    return (products if offsets is None else products + offsets[..., None]).reshape(-1)


def _half(data: Bytes) -> Floats:
    """Return float32 [blocks, n] of float16, stored as bytes [blocks, 2 n]."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _nibbles(data: Bytes, run: int) -> Bytes:
    """Return [blocks, numbers] 0 to 15: for each `run` bytes first their low halves, then their high ones."""
    data = data.reshape(len(data), -1, 1, run)
    return np.concatenate([data & 15, data >> 4], axis=2).reshape(len(data), -1)


def _shifted(data: Bytes, run: int, shifts: range) -> Bytes:
    """Return [blocks, numbers]: for each `run` bytes these right shifts of them all, one after the other."""
    turns = np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (data.reshape(len(data), -1, 1, run) >> turns).reshape(len(data), -1)


def _whole(codes: NDArray[Any]) -> NDArray[np.int8]:
    """Return codes [blocks, numbers] as blocks of one part."""
    return codes.astype(np.int8)[:, None]


def _q4_0(blocks: Bytes) -> Parts:
    return Parts(_whole(_nibbles(blocks[:, 2:], 16)) - np.int8(8), _half(blocks[:, :2]))


def _q4_1(blocks: Bytes) -> Parts:
    return Parts(_whole(_nibbles(blocks[:, 4:], 16)), _half(blocks[:, :2]), _half(blocks[:, 2:4]))


def _fifth_bits(data: Bytes) -> Bytes:
    """Return [blocks, 32] 0 or 16, the fifth bits of 32 numbers, from 4 bytes."""
    return np.unpackbits(np.ascontiguousarray(data), axis=1, bitorder="little") << np.uint8(4)


def _q5_0(blocks: Bytes) -> Parts:
    codes = _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6])
    return Parts(_whole(codes) - np.int8(16), _half(blocks[:, :2]))


def _q5_1(blocks: Bytes) -> Parts:
    codes = _nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8])
    return Parts(_whole(codes), _half(blocks[:, :2]), _half(blocks[:, 2:4]))


def _q8_0(blocks: Bytes) -> Parts:
    return Parts(_whole(np.ascontiguousarray(blocks[:, 2:]).view(np.int8)), _half(blocks[:, :2]))


def _in_sixteens(codes: NDArray[Any]) -> NDArray[np.int8]:
    """Return codes [blocks, 256] in 16 parts."""
    return codes.astype(np.int8).reshape(-1, 16, 16)


def _q2_k(blocks: Bytes) -> Parts:
    scales, d, least = blocks[:, :16], _half(blocks[:, 80:82]), _half(blocks[:, 82:84])
    codes = _in_sixteens(_shifted(blocks[:, 16:80], 32, range(0, 8, 2)) & 3)
    return Parts(codes, d * (scales & 15).astype(np.float32), -(least * (scales >> 4).astype(np.float32)))


def _q3_k(blocks: Bytes) -> Parts:
    """Read 16 scales of 6 bits: low halves in bytes 0 to 7, first the low nibbles, then the high ones; upper bits in 8
    to 11. A number loses 4 where its bit of the mask is not set."""
    packed = blocks[:, 96:108]
    upper = _shifted(packed[:, 8:], 4, range(0, 8, 2)) & 3
    scales = (_nibbles(packed[:, :8], 8) | (upper << 4)).astype(np.float32) - 32
    lower = _in_sixteens(_shifted(blocks[:, 32:96], 32, range(0, 8, 2)) & 3)
    is_set = _in_sixteens(_shifted(blocks[:, :32], 32, range(8)) & 1)
    return Parts(lower - 4 * (1 - is_set), _half(blocks[:, 108:]) * scales)


def _scales_and_offsets(packed: Bytes) -> tuple[Floats, Floats]:
    """Return 8 scales and 8 offsets of 6 bits [blocks, 8], from 12 bytes: four of each in the low bits of bytes 0 to 3
    and 4 to 7; of the others the low halves in bytes 8 to 11, the upper bits in those of the first four."""
    scales, offsets, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    return (
        np.concatenate([scales & 63, (both & 15) | ((scales >> 2) & 48)], axis=1).astype(np.float32),
        np.concatenate([offsets & 63, (both >> 4) | ((offsets >> 2) & 48)], axis=1).astype(np.float32),
    )


def _with_offsets(blocks: Bytes, codes: Bytes) -> Parts:
    """Return the parts of codes [blocks, 256] of Q4_K and Q5_K, whose blocks begin alike."""
    scales, offsets = _scales_and_offsets(blocks[:, 4:16])
    in_eights = codes.astype(np.int8).reshape(-1, 8, 32)
    return Parts(in_eights, _half(blocks[:, :2]) * scales, -(_half(blocks[:, 2:4]) * offsets))


def _q4_k(blocks: Bytes) -> Parts:
    return _with_offsets(blocks, _nibbles(blocks[:, 16:], 32))


def _q5_k(blocks: Bytes) -> Parts:
    fifth = (_shifted(blocks[:, 16:48], 32, range(8)) & np.uint8(1)) << np.uint8(4)
    return _with_offsets(blocks, _nibbles(blocks[:, 48:], 32) | fifth)


def _q6_k(blocks: Bytes) -> Parts:
    upper = (_shifted(blocks[:, 128:192], 32, range(0, 8, 2)) & 3) << 4
    codes = _in_sixteens(_nibbles(blocks[:, :128], 64) | upper) - np.int8(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return Parts(codes, _half(blocks[:, 208:]) * scales)


def _iq4_nl(blocks: Bytes) -> Parts:
    return Parts(_whole(IQ4_LEVELS[_nibbles(blocks[:, 2:], 16)]), _half(blocks[:, :2]))


def _iq4_xs(blocks: Bytes) -> Parts:
    """Read 8 scales of 6 bits: upper bits in bytes 2 and 3, low halves in 4 to 7, two in a byte."""
    upper = _shifted(blocks[:, 2:4], 1, range(0, 8, 2)) & 3
    scales = (_nibbles(blocks[:, 4:8], 1) | (upper << 4)).astype(np.float32) - 32
    levels = IQ4_LEVELS[_nibbles(blocks[:, 8:], 16)].reshape(-1, 8, 32)
    return Parts(levels, _half(blocks[:, :2]) * scales)


def _mxfp4(blocks: Bytes) -> Parts:
    """Scale 2 ** (e - 128), half of E8M0's: the levels are twice those of E2M1."""
    exponents = blocks[:, :1].astype(np.uint32)
    bits = np.where(exponents < 2, np.uint32(0x00200000) << exponents, (exponents - 1) << np.uint32(23))
    return Parts(_whole(MXFP4_LEVELS[_nibbles(blocks[:, 1:], 16)]), bits.astype(np.uint32).view(np.float32))


_FORMULAS: dict[str, Callable[[Any], Parts]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q2_K": _q2_k, "Q3_K": _q3_k,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "MXFP4": _mxfp4,
}  # fmt: skip
