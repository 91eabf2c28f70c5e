"""Formats of a weight [K, N] for the kernels of `native/`: the constants, and their computation from the floats."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from speccompile.compiler.checkpoints.gguf.block_types import CodeKind
from speccompile.compiler.lower.native import layouts
from speccompile.compiler.lower.native.layouts import Array, Floats
from speccompile.compiler.lower.quantize import numpy_quantizers
from speccompile.compiler.weights.stored import Codes
from speccompile.machine.parallel import in_parallel
from speccompile.plan.precisions import round_up

Read = Callable[[slice], Floats]
"""Reads some columns of a weight [K, N]: float32 [K, columns of the part]."""

Quantize = Callable[[slice], numpy_quantizers.Int4]
"""Reads columns in 4 bits, for weights that are stored in 4 bits or quantized in another way than from their floats."""


@dataclass(frozen=True)
class Field:
    """One of the constants of a weight. suffix: of its name. make: computes it when it is written."""

    suffix: str
    dtype: ir.DataType
    shape: tuple[int, ...]
    make: Callable[[], Array]


class Format(ABC):
    @abstractmethod
    def fields(
        self, read: Read, depth: int, columns: int, block_size: int, int4: Quantize | None = None
    ) -> list[Field]:
        """Return the constants of a weight, in the order of the operators' inputs. int4: reads it in 4 bits, for that
        format."""

    @abstractmethod
    def text(self, block_size: int) -> str:
        """Return a description for messages."""


@dataclass(frozen=True)
class Floating(Format):
    """Floats, tile after tile of columns."""

    dtype: ir.DataType

    def fields(
        self, read: Read, depth: int, columns: int, block_size: int, int4: Quantize | None = None
    ) -> list[Field]:
        numpy = np.dtype(self.dtype.numpy())
        shape = (-(-columns // layouts.TILE), depth, layouts.TILE)
        return [Field("", self.dtype, shape, lambda: layouts.packed_by_part(read, depth, columns, numpy))]

    def text(self, block_size: int) -> str:
        return "float32" if self.dtype == ir.DataType.FLOAT else self.dtype.name.lower()


class Int8(Format):
    """Symmetric int8, one scale per column."""

    def fields(
        self, read: Read, depth: int, columns: int, block_size: int, int4: Quantize | None = None
    ) -> list[Field]:
        tiles, filled = -(-columns // layouts.TILE), round_up(depth, layouts.INT8_DEPTH)

        def some(part: slice) -> Array:
            return numpy_quantizers.numbers(read(part), numpy_quantizers.INT8, depth)

        def numbers() -> Array:
            return layouts.packed_int8(some, depth, columns)

        def scales() -> Array:
            found = in_parallel(
                lambda part: numpy_quantizers.scales(read(part), numpy_quantizers.INT8, depth),
                layouts.column_blocks(depth, columns),
            )
            return layouts.padded_columns(np.concatenate(found, 1).reshape(columns))

        return [
            Field("", ir.DataType.UINT8, (tiles, filled // 4, layouts.TILE, 4), numbers),
            Field(".scales", ir.DataType.FLOAT, (tiles * layouts.TILE,), scales),
        ]

    def text(self, block_size: int) -> str:
        return "int8 by column"


class Int4(Format):
    """4 bits. Per block a float16 scale and a one-byte zero point; per column a power of two."""

    def fields(
        self, read: Read, depth: int, columns: int, block_size: int, int4: Quantize | None = None
    ) -> list[Field]:
        made = _Int4Weight(
            int4 or (lambda part: numpy_quantizers.int4(read(part), block_size)), depth, columns, block_size
        )
        tiles, filled = -(-columns // layouts.TILE), round_up(depth, block_size)
        blocks = (tiles, filled // block_size, layouts.TILE)
        return [
            Field("", ir.DataType.UINT8, (tiles, filled // 8, layouts.TILE, 4), made.numbers),
            Field(".scales", ir.DataType.FLOAT16, blocks, lambda: made.scales),
            Field(".zero_points", ir.DataType.UINT8, blocks, lambda: made.zero_points),
            Field(".factors", ir.DataType.FLOAT, (tiles * layouts.TILE,), lambda: made.factors),
        ]

    def text(self, block_size: int) -> str:
        return f"4 bits in blocks of {block_size}"


class _Int4Weight:
    """A weight in 4 bits, quantized once: its numbers are written and freed, while scales and zero points wait."""

    def __init__(self, quantize: Quantize, depth: int, columns: int, block_size: int) -> None:
        self._quantize, self._depth, self._columns, self._block_size = quantize, depth, columns, block_size

    def numbers(self) -> Array:
        beside = dict[int, tuple[Array, Array]]()

        def some(part: slice) -> Array:
            found = self._quantize(part)
            beside[part.start] = found.scales, found.zero_points
            return found.numbers

        packed = layouts.packed_int4(some, self._depth, self._columns, self._block_size)
        in_order = (beside[start] for start in sorted(beside))
        scales, zero_points = (np.concatenate(each, 1) for each in zip(*in_order, strict=True))
        self._beside = scales, zero_points
        return packed

    @cached_property
    def _beside(self) -> tuple[Array, Array]:
        """Return scales and zero points [blocks, N]; quantize again if `numbers` has not stored them."""
        found = in_parallel(self._quantize, layouts.column_blocks(self._depth, self._columns))
        return np.concatenate([each.scales for each in found], 1), np.concatenate(
            [each.zero_points for each in found], 1
        )

    @cached_property
    def factors(self) -> Array:
        return layouts.padded_columns(numpy_quantizers.column_factors(self._beside[0]))

    @property
    def scales(self) -> Array:
        factors = self.factors[: self._columns]
        return layouts.packed_blocks(self._beside[0] / factors, np.dtype(np.float16))

    @property
    def zero_points(self) -> Array:
        return layouts.packed_blocks(self._beside[1], np.dtype(np.uint8))


ReadCodes = Callable[[slice], Codes]
"""Reads some columns of a weight [K, N] in its codes."""


def code_fields(kind: CodeKind, codes: ReadCodes, depth: int, columns: int) -> list[Field]:
    """Return the constants of a weight whose codes stay as they are: numbers in four or eight bits, and float32 scales
    and offsets of their blocks, which hold the products of a type's own scales exactly."""

    def some(part: slice) -> Array:
        numbers = codes(part).numbers
        return numbers if kind.bits == 8 else (numbers + np.int8(kind.zero_point)).view(np.uint8)

    def by_block(name: str) -> Array:
        found = [getattr(codes(part), name) for part in layouts.column_blocks(depth, columns)]
        return layouts.packed_blocks(np.concatenate(found, 1), np.dtype(np.float32))

    tiles, pack = -(-columns // layouts.TILE), layouts.packed_int4 if kind.bits == 4 else layouts.packed_int8
    blocks = (tiles, depth // kind.block_size, layouts.TILE)
    return [
        Field("", ir.DataType.UINT8, (tiles, depth * kind.bits // 32, layouts.TILE, 4),
              lambda: pack(some, depth, columns, kind.block_size)),
        Field(".scales", ir.DataType.FLOAT, blocks, lambda: by_block("scales")),
        Field(".offsets", ir.DataType.FLOAT, blocks, lambda: by_block("offsets"))
        if kind.has_offsets
        else Field(".offsets", ir.DataType.FLOAT, layouts.NO_OFFSETS.shape, lambda: layouts.NO_OFFSETS),
    ]  # fmt: skip


FORMATS: dict[str, Format] = {
    "float32": Floating(ir.DataType.FLOAT),
    "bfloat16": Floating(ir.DataType.BFLOAT16),
    "int8": Int8(),
    "int4": Int4(),
}
"""Form -> its format."""
