"""AWQ, version gemm: qweight int32 [K, N / 8], qzeros int32 [groups, N / 8], scales [groups, N]; in 4 bits.

    weight[n, k] = scales[g, n] * (qweight[k, n] - qzeros[g, n])             g = k // group_size

A word holds eight outputs, the lowest bits first, in the order of ORDER. AutoAWQ, `awq.utils.packing_utils`.
"""

from typing import Any

import numpy as np

from speccompile.compiler.weights.quantized.packed import Packed, pieces
from speccompile.compiler.weights.quantized.scaled import Groups, Integers, QuantizedRows
from speccompile.compiler.weights.quantized.tensor_pool import QWEIGHT, CheckpointTensors
from speccompile.compiler.weights.source import LazyWeight

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def read_weight(stock: CheckpointTensors, name: str) -> LazyWeight:
    """Return the weight of a module."""
    numbers, zeros = stock.packed(f"{name}{QWEIGHT}", "I32"), stock.packed(f"{name}.qzeros", "I32")
    scales = stock.weight(f"{name}.scales")
    (depth, words), groups = numbers.shape, scales.shape[0]
    stock.check(f"{name}.scales", scales, (groups, words * len(ORDER)))
    stock.check(f"{name}.qzeros", zeros, (groups, words))
    size = stock.group_size(name, depth, groups)
    return _Awq((words * len(ORDER), depth), Groups(size), {"numbers": numbers, "scales": scales, "zeros": zeros})


class _Awq(Integers):
    bits = 4

    def codes(self, part: slice) -> QuantizedRows:
        tensors = self._made_of
        return QuantizedRows(
            _columns(tensors["numbers"], part), tensors["scales"].columns(part), _columns(tensors["zeros"], part)
        )


def _columns(packed: Packed, part: slice) -> Any:
    """Unpack to uint8 [rows, outputs of the part]."""
    first = part.start // len(ORDER)
    words = packed.columns(slice(first, -(-part.stop // len(ORDER))))
    found = np.empty((*words.shape, len(ORDER)), np.uint8)
    for output, number in zip(ORDER, pieces(words, 4), strict=True):
        found[..., output] = number
    return found.reshape(len(words), -1)[:, part.start - first * len(ORDER) : part.stop - first * len(ORDER)]
