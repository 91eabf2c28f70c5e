"""Columns of weights as their files store them: integers and their scales, not yet dequantized."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.checkpoints.gguf.block_types import CodeKind

Floats = NDArray[np.float32]


class Int4(NamedTuple):
    """Some columns of a weight [K, N] that is stored in 4 bits: a number q stands for (q - zero_point) * scale.

    numbers: uint8 [K, n], 0 to 15. scales: float32, and zero_points: uint8, 0 to 15, both [groups, n]; a group is
    `group_size` numbers along K, the last one perhaps fewer.
    """

    numbers: NDArray[np.uint8]
    scales: Floats
    zero_points: NDArray[np.uint8]
    group_size: int


class Codes(NamedTuple):
    """Some columns of a weight [K, N] in codes: numbers int8 [K, n], without the zero point; scales, and offsets or
    None, float32 [K / block_size, n]."""

    numbers: NDArray[np.int8]
    scales: Floats
    offsets: Floats | None


def joined_int4(parts: Sequence[Int4 | None]) -> Int4 | None:
    """Concatenate columns; None if some are not stored in 4 bits, or their group sizes differ."""
    known = [part for part in parts if part is not None]
    sizes = {part.group_size for part in known}
    if len(known) < len(parts) or len(sizes) != 1:
        return None
    numbers, scales, zero_points = (np.concatenate(each, 1) for each in list(zip(*known, strict=True))[:3])
    return Int4(numbers, scales, zero_points, sizes.pop())


def joined_codes(parts: Sequence[Codes]) -> Codes:
    """Concatenate columns of one kind of codes."""
    numbers, scales, offsets = zip(*parts, strict=True)
    moved = [each for each in offsets if each is not None]
    return Codes(np.concatenate(numbers, 1), np.concatenate(scales, 1), np.concatenate(moved, 1) if moved else None)


def in_kind(codes: Codes, own: CodeKind, joined: CodeKind) -> Codes:
    """Return codes of one kind in another one that holds it, see `joined_kind`: the same numbers, to the last bit."""
    times = own.block_size // joined.block_size
    scales, offsets = codes.scales.repeat(times, 0), codes.offsets
    if offsets is not None:
        offsets = offsets.repeat(times, 0)
    elif joined.has_offsets:
        offsets = np.full_like(scales, -0.0)  # which leaves zeros of both signs as they are
    return Codes(codes.numbers, scales, offsets)
