"""Numbers of 8 bits, floats or integers, with a scale for every block of outputs and inputs.

    weight[n, k] = scale[n // height, k // width] * (number[n, k] - zero_point[n // height, k // width])

transformers.integrations.finegrained_fp8, `Fp8Dequantize`. Scales are floats, or powers of two in a byte.
"""

from typing import Any

from speccompile.compiler.weights.quantized.packed import FLOATS, Packed
from speccompile.compiler.weights.quantized.scaled import Grid, Groups, QuantizedRows, Scaled
from speccompile.compiler.weights.quantized.tensor_pool import CheckpointTensors, scales_of
from speccompile.compiler.weights.source import LazyWeight, Stacked


def tiled(
    stock: CheckpointTensors, name: str, numbers: Packed, scales: LazyWeight | Packed | None, zeros: Any = None
) -> LazyWeight:
    """Return the weight [N, K] of numbers, or a stack [E, N, K]. name: of the scales. zeros: integers shaped as
    scales."""
    if scales is None:
        raise stock.wrong(name, None, "the scales of a weight")
    if len(numbers.shape) == 3 and zeros is None:
        if scales.shape[:1] != numbers.shape[:1]:
            raise stock.wrong(name, scales, f"scales for each of {numbers.shape[0]} matrices")
        each = range(numbers.shape[0])
        return Stacked([tiled(stock, name, numbers.select(index), scales.select(index)) for index in each])
    if len(numbers.shape) != 2:
        raise stock.wrong(name.removesuffix("_scale"), numbers, "a matrix")
    rows, depth = numbers.shape
    grid, columns = grid_of(stock, name, scales, rows)
    block = stock.said.block
    is_said = block is not None and -(-depth // block[1]) == columns
    width = block[1] if block is not None and is_said else stock.group_size(name, depth, columns)
    made_of = {"numbers": numbers, "scales": scales, "zeros": zeros}
    offsets = None if zeros is None else grid_of(stock, f"{name} (zero points)", zeros, rows)[0]
    return _Tiled((rows, depth), Groups(width), made_of, grid, offsets)


def grid_of(stock: CheckpointTensors, name: str, scales: LazyWeight | Packed, rows: int) -> tuple[Grid, int]:
    """Return the scales of `rows` outputs, for any supported shape of the scales, and their number per output."""
    shape = scales.shape
    many = shape[0] if shape else 1
    columns = shape[1] if len(shape) == 2 else 1
    said = stock.said.block[0] if stock.said.block else 0
    height = next((height for height in (said, rows // max(many, 1)) if height and -(-rows // height) == many), 0)
    if not height or len(shape) > 2:
        raise stock.wrong(name, scales, f"scales for {rows} outputs")

    def read(part: slice) -> Any:
        return scales_of(scales, part).reshape(-1, columns)

    return Grid(read, height), columns


class _Tiled(Scaled):
    def __init__(
        self, shape: tuple[int, int], groups: Groups, made_of: dict[str, Any], scales: Grid, zeros: Grid | None
    ) -> None:
        super().__init__(shape, groups, made_of)
        self._scales, self._zeros = scales, zeros

    def identity(self) -> Any:
        return super().identity() | {"height": self._scales.height}

    def codes(self, part: slice) -> QuantizedRows:
        numbers = self._made_of["numbers"]
        read = numbers.rows(part)
        found = read.view(FLOATS[numbers.dtype]) if numbers.dtype in FLOATS else read
        zeros = None if self._zeros is None else self._zeros.columns(part)
        return QuantizedRows(found.T, self._scales.columns(part), zeros)
