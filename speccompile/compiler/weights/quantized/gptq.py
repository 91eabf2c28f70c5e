"""GPTQ: qweight int32 [K * bits / 32, N], qzeros int32 [groups, N * bits / 32], scales [groups, N], g_idx int32 [K].

    weight[n, k] = scales[g, n] * (qweight[k, n] - zero_points[g, n])        g = g_idx[k], k // group_size without it

gptqmodel, `BaseQuantLinear.dequantize_weight`. The format "gptq" stores zero points minus one, subtracted from whole
32-bit words: `convert_gptq_v1_to_v2_format_module` adds it back. "gptq_v2" stores zero points.
"""

from typing import Any

import numpy as np

from speccompile.compiler.weights.quantized.packed import Packed, pieces, unpacked
from speccompile.compiler.weights.quantized.scaled import Groups, Integers, QuantizedRows
from speccompile.compiler.weights.quantized.tensor_pool import QWEIGHT, CheckpointTensors
from speccompile.compiler.weights.source import LazyWeight


def read_weight(stock: CheckpointTensors, name: str) -> LazyWeight:
    """Return the weight of a module."""
    numbers, zeros = stock.packed(f"{name}{QWEIGHT}", "I32"), stock.packed(f"{name}.qzeros", "I32")
    scales, order = stock.weight(f"{name}.scales"), stock.pop(f"{name}.g_idx")
    columns, groups = numbers.shape[1], scales.shape[0]
    said = stock.said.bits
    bits = next((bits for bits in (said, 4, 8) if bits and -(-columns * bits // 32) == zeros.shape[-1]), 0)
    if not bits:
        raise stock.wrong(f"{name}.qzeros", zeros, f"4 or 8 bits for each of {columns} outputs")
    depth = numbers.shape[0] * 32 // bits
    stock.check(f"{name}.scales", scales, (groups, columns))
    stock.check(f"{name}.qzeros", zeros, (groups, zeros.shape[1]))
    if order is not None and (not isinstance(order, Packed) or order.shape != (depth,)):
        raise stock.wrong(f"{name}.g_idx", order, f"the group of each of {depth} inputs")
    size = stock.group_size(name, depth, groups)

    def group_of_inputs() -> Any:
        if order is None:
            return None
        found = order.read_all()
        if found.min() < 0 or found.max() >= groups:
            raise stock.wrong(f"{name}.g_idx", order, f"groups from 0 to {groups - 1}")
        return found

    made_of = {"numbers": numbers, "scales": scales, "zeros": zeros, "order": order}
    return _Gptq((columns, depth), Groups(size, group_of_inputs), made_of, bits, stock.said.stored_less_one)


class _Gptq(Integers):
    def __init__(
        self, shape: tuple[int, int], groups: Groups, made_of: dict[str, Any], bits: int, less_one: bool
    ) -> None:
        super().__init__(shape, groups, made_of)
        self.bits, self._less_one = bits, less_one

    def codes(self, part: slice) -> QuantizedRows:
        tensors = self._made_of
        return QuantizedRows(
            _unpacked_rows(tensors["numbers"].columns(part), self.bits),
            tensors["scales"].columns(part),
            self._zero_points(part),
        )

    def _zero_points(self, part: slice) -> Any:
        """Return zero points uint8 [groups, n]."""
        each = 32 // self.bits
        first = part.start // each
        words = self._made_of["zeros"].columns(slice(first, -(-part.stop // each))).view(np.uint32)
        if self._less_one:
            ones = sum(1 << shift for shift in range(0, 32, self.bits))
            words = words + np.uint32(ones)  # modulo 2**32, as in the subtraction
        return unpacked(words, self.bits)[:, part.start - first * each : part.stop - first * each]

    def identity(self) -> Any:
        return super().identity() | {"less_one": self._less_one}


def _unpacked_rows(words: Any, bits: int) -> Any:
    """Unpack int32 [rows, n] to uint8 [rows * 32 / bits, n]: the lowest bits of a word first."""
    rows, columns = words.shape
    found = np.empty((rows, 32 // bits, columns), np.uint8)
    for index, number in enumerate(pieces(words, bits)):
        found[:, index] = number
    return found.reshape(-1, columns)
