"""Weight layouts of the kernels of `native/`: tiles of sixteen columns, with elements in the order of reading.

A weight is [K, N]: K elements deep, N columns. The last tile is padded. See `native/kernels/kernels.h`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.machine.parallel import in_parallel
from speccompile.plan.precisions import round_up

Array = NDArray[Any]
Floats = NDArray[np.float32]

TILE = 16
"""Columns of a tile."""

INT8_DEPTH = 64
"""Multiple to which a column of int8 codes is padded."""

MIDDLE = 128
"""Code of zero, in eight bits."""

NO_OFFSETS: Floats = np.zeros((1, 1, 1), np.float32)
"""Offsets of codes that have none."""

_AT_A_TIME = 1 << 22  # elements of a weight


def column_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield all columns of a weight, whole tiles of them at a time."""
    step = max(TILE, _AT_A_TIME // rows // TILE * TILE)
    return (slice(start, min(start + step, columns)) for start in range(0, columns, step))


def packed_floats(weight: Floats, dtype: np.dtype[Any]) -> Array:
    """Pack floats [K, N] into [tiles, K, 16], in float32 or bfloat16."""
    depth, columns = weight.shape
    return packed_by_part(lambda part: weight[:, part], depth, columns, dtype)


def packed_by_part(read: Callable[[slice], Floats], depth: int, columns: int, dtype: np.dtype[Any]) -> Array:
    """Pack floats of a weight that is read a few columns at a time: float32 [K, columns of a part]."""
    packed = np.zeros((-(-columns // TILE), depth, TILE), dtype)

    def pack(part: slice) -> None:
        packed[_tiles(part)] = _by_tile(read(part), dtype)

    in_parallel(pack, column_blocks(depth, columns))
    return packed


def unpacked_floats(packed: Array, part: slice) -> Floats:
    """Return float32 [K, columns of the part]; the part begins with a tile."""
    return _columns(packed.transpose(1, 0, 2), part).astype(np.float32)


def packed_int8(
    codes: Callable[[slice], NDArray[np.int8]], depth: int, columns: int, multiple: int = INT8_DEPTH
) -> NDArray[np.uint8]:
    """Pack into uint8 [tiles, K / 4, 16, 4], K padded to a multiple. codes: int8 [K, ..] of some columns."""
    filled = round_up(depth, multiple)
    packed = np.full((-(-columns // TILE), filled // 4, TILE, 4), MIDDLE, np.uint8)

    def pack(part: slice) -> None:
        some = _filled(codes(part).view(np.uint8) ^ np.uint8(MIDDLE), filled, MIDDLE)
        packed[_tiles(part)] = some.reshape(filled // 4, 4, -1, TILE).transpose(2, 0, 3, 1)

    in_parallel(pack, column_blocks(depth, columns))
    return packed


def unpacked_int8(packed: NDArray[np.uint8], depth: int, part: slice) -> NDArray[np.int8]:
    """Return int8 [depth, columns of the part]."""
    some = packed[_tiles(part)].transpose(1, 3, 0, 2).reshape(-1, len(packed[_tiles(part)]) * TILE)
    codes: NDArray[np.int8] = (some[:depth, : part.stop - part.start] ^ np.uint8(MIDDLE)).view(np.int8)
    return codes


def packed_int4(
    codes: Callable[[slice], NDArray[np.uint8]], depth: int, columns: int, block_size: int
) -> NDArray[np.uint8]:
    """Pack into uint8 [tiles, K / 8, 16, 4], K padded to whole blocks: four codes of a column in the low halves of
    bytes, the next four in the high ones. codes: 0 to 15 [K, ..] of some columns."""
    filled = round_up(depth, block_size)
    packed = np.zeros((-(-columns // TILE), filled // 8, TILE, 4), np.uint8)

    def pack(part: slice) -> None:
        halves = _filled(codes(part), filled, 0).reshape(filled // 8, 2, 4, -1, TILE).transpose(3, 0, 1, 4, 2)
        packed[_tiles(part)] = halves[:, :, 0] | halves[:, :, 1] << 4

    in_parallel(pack, column_blocks(depth, columns))
    return packed


def unpacked_int4(packed: NDArray[np.uint8], part: slice) -> NDArray[np.uint8]:
    """Return uint8 [padded K, columns of the part], 0 to 15."""
    some = packed[_tiles(part)]
    halves = np.stack([some & 15, some >> 4], 2)  # [tiles, K / 8, 2, 16, 4]
    return _columns(halves.transpose(1, 2, 4, 0, 3).reshape(-1, len(some), TILE), slice(0, part.stop - part.start))


def packed_blocks(values: Array, dtype: np.dtype[Any]) -> Array:
    """Pack values [blocks, N], one per block of a column, into [tiles, blocks, 16]."""
    return _by_tile(values, dtype)


def unpacked_blocks(packed: Array, part: slice) -> Array:
    """Return [blocks, columns of the part]."""
    return _columns(packed.transpose(1, 0, 2), part)


def padded_columns(values: Array) -> Array:
    """Pad [N] to whole tiles."""
    return np.pad(values, (0, -len(values) % TILE))


def _by_tile(values: Array, dtype: np.dtype[Any]) -> Array:
    """Arrange [rows, N] as [tiles, rows, 16]."""
    rows = len(values)
    return np.ascontiguousarray(_filled(values, rows, 0).astype(dtype).reshape(rows, -1, TILE).transpose(1, 0, 2))


def _tiles(part: slice) -> slice:
    return slice(part.start // TILE, -(-part.stop // TILE))


def _columns(tiles: Array, part: slice) -> Array:
    """Return columns [K, columns of the part] of tiles [K, tiles, 16]."""
    some = tiles[:, _tiles(part)]
    return some.reshape(len(some), -1)[:, : part.stop - part.start]


def _filled(values: Array, rows: int, fill: int) -> Array:
    """Pad to [rows, whole tiles of columns]."""
    missing = (rows - values.shape[0], -values.shape[1] % TILE)
    return np.pad(values, ((0, missing[0]), (0, missing[1])), constant_values=fill) if any(missing) else values
