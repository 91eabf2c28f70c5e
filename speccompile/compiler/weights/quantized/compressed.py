"""compressed-tensors: weights of Linear layers, with separate scales.

    pack-quantized                weight_packed int32 [N, K * bits / 32], the lowest bits of a word first, 2**(bits - 1)
                                  more than the number; weight_shape; weight_zero_point packed the same along N
    int-, float-, naive-quantized weight int8 or float8 [N, K]; weight_zero_point int8 as scales
    both                          weight_scale [N, groups], [N, 1], [1] or [N / rows, K / columns]

    weight[n, k] = scale[n, g] * (number[n, k] - zero_point[n, g])           g = k // group_size, or weight_g_idx[k]

compressed_tensors.quantization.lifecycle.forward, `dequantize`; compressors.pack_quantized.helpers for the packing.
"""

from typing import Any

import numpy as np

from speccompile.compiler.weights.quantized.packed import Packed, unpacked
from speccompile.compiler.weights.quantized.scaled import Grid, Groups, Integers, QuantizedRows
from speccompile.compiler.weights.quantized.tensor_pool import FLOATS8, CheckpointTensors
from speccompile.compiler.weights.quantized.tiled import grid_of, tiled
from speccompile.compiler.weights.source import LazyWeight

_MARK, _SCALE = "weight_packed", "weight_scale"

ACTIVATIONS = (
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point", "k_scale", "v_scale",
    "q_scale", "k_zero_point", "v_zero_point",
)  # fmt: skip
"""Scales of activations and caches, which stay floats."""


def find(stock: CheckpointTensors) -> dict[str, LazyWeight]:
    found = {f"{name}weight": _unpacked(stock, name) for name in stock.names_with_suffix(_MARK)}
    for name in stock.names_with_suffix(f".{_SCALE}"):
        if f"{name}.weight" not in found:
            found[f"{name}.weight"] = _dense(stock, f"{name}.")
    for name in ACTIVATIONS:
        for before in stock.names_with_suffix(f".{name}"):
            stock.pop(f"{before}.{name}")
    return found


def _dense(stock: CheckpointTensors, name: str) -> LazyWeight:
    numbers = stock.packed(f"{name}weight", "I8", *FLOATS8)
    zeros = stock.pop(f"{name}weight_zero_point")
    return tiled(stock, f"{name}{_SCALE}", numbers, stock.pop(f"{name}{_SCALE}"), zeros)


def _unpacked(stock: CheckpointTensors, name: str) -> LazyWeight:
    numbers, scales = stock.packed(f"{name}{_MARK}", "I32"), stock.weight(f"{name}{_SCALE}")
    said = stock.packed(f"{name}weight_shape", "I64", "I32")
    rows, depth = (int(size) for size in said.read_all().reshape(-1)) if said.shape == (2,) else (0, 0)
    bits = next((bits for bits in (4, 8) if numbers.shape == (rows, -(-depth * bits // 32))), 0)
    if not bits:
        raise stock.wrong(f"{name}{_MARK}", numbers, f"4 or 8 bits for each of {rows} x {depth} numbers")
    grid, columns = grid_of(stock, f"{name}{_SCALE}", scales, rows)
    size = stock.group_size(name, depth, columns)
    zeros, order = stock.pop(f"{name}weight_zero_point"), stock.pop(f"{name}weight_g_idx")
    if zeros is not None:
        _check_zeros(stock, f"{name}weight_zero_point", zeros, (rows, columns), bits)

    def group_of_inputs() -> Any:
        found = order.read_all() if isinstance(order, Packed) else None
        return None if found is None or (found == -1).all() else found

    made_of = {"numbers": numbers, "scales": scales, "zeros": zeros, "order": order}
    return _Packed((rows, depth), Groups(size, group_of_inputs), made_of, bits, grid)


def _check_zeros(stock: CheckpointTensors, name: str, zeros: Any, shape: tuple[int, int], bits: int) -> None:
    """Check the shape of zero points: packed along the outputs; or unpacked, as versions before 0.9 wrote them."""
    packed = (-(-shape[0] * bits // 32), shape[1])
    if not isinstance(zeros, Packed) or (zeros.dtype, zeros.shape) not in (("I32", packed), ("I8", shape)):
        raise stock.wrong(name, zeros, f"I32 {list(packed)} or I8 {list(shape)}")


class _Packed(Integers):
    def __init__(
        self, shape: tuple[int, int], groups: Groups, made_of: dict[str, Any], bits: int, scales: Grid
    ) -> None:
        super().__init__(shape, groups, made_of)
        self.bits, self._scales = bits, scales

    def codes(self, part: slice) -> QuantizedRows:
        numbers = unpacked(self._made_of["numbers"].rows(part), self.bits)[:, : self.shape[1]]
        scales = self._scales.columns(part)
        return QuantizedRows(numbers.T, scales, self._zero_points(part, scales.shape))

    def _zero_points(self, part: slice, shape: tuple[int, ...]) -> Any:
        zeros, middle = self._made_of["zeros"], 1 << (self.bits - 1)
        if zeros is None:
            return np.full(shape, middle, np.uint8)
        if zeros.dtype == "I8":
            return (zeros.rows(part).T.astype(np.int16) + middle).astype(np.uint8)
        each = 32 // self.bits
        first = part.start // each
        words = zeros.rows(slice(first, -(-part.stop // each)))
        return unpacked(words.T, self.bits)[:, part.start - first * each : part.stop - first * each]
