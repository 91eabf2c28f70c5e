"""Weights for ONNX Runtime's own operator, which multiplies with packed 4- or 8-bit weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.lower.native import ONNXRUNTIME_DOMAIN
from speccompile.compiler.lower.quantize import passthrough
from speccompile.compiler.lower.quantize.lazy import add_initializer
from speccompile.compiler.lower.quantize.linear import HEAD, Linear, Weight
from speccompile.compiler.lower.quantize.report import QuantizeReport

_INT8_BLOCK = 32  # with larger ones a row's result depends on its window, in the last bits

# Activations are quantized too, inside the operator, one block of one row at a time. Without that it is 2.7 times as
# slow.
_ACCURACY_LEVEL = 4


@dataclass(frozen=True)
class _Stored:
    values: tuple[ir.Value, ...]
    bits: int
    block_size: int


def matmul_nbits(graph: ir.Graph, linears: Iterable[Linear], word: str, block_size: int) -> QuantizeReport:
    """Before: y = MatMul(x, weight). After: y = com.microsoft::MatMulNBits(x, numbers, scales, zero points).

    word: "int4", with the head in 8 bits, or "int8". A weight that several MatMuls read is stored once.
    """
    report, stored = QuantizeReport(), dict[str, _Stored]()
    for linear in linears:
        name = linear.weight.name
        if name not in stored:
            bits, block = (4, block_size) if word == "int4" and linear.role != HEAD else (8, _INT8_BLOCK)
            stored[name] = _store(graph, linear.weight, bits, block)
            report.quantized[name] = f"{bits} bits in blocks of {block}"
        _replace(graph, linear, stored[name])
    return report


def _store(graph: ir.Graph, weight: Weight, bits: int, block: int) -> _Stored:
    rows, columns = weight.shape
    shape, name = (columns, -(-rows // block)), f"{weight.name}.{bits}bits"

    def made(field: str) -> NDArray[np.generic]:
        found: NDArray[np.generic] = getattr(passthrough.nbits_or_passthrough(weight, bits, block), field)
        return found

    of = weight.source_weight.identity()

    def constant(suffix: str, field: str, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
        recipe = {"bits": bits, "block_size": block, "field": field, "of": of}
        return add_initializer(graph, f"{name}{suffix}", dtype, shape, partial(made, field), recipe)

    values = [
        constant("", "numbers", ir.DataType.UINT8, (*shape, block * bits // 8)),
        constant(".scales", "scales", ir.DataType.FLOAT, shape),
    ]
    if bits == 4:  # 8 bits are symmetric
        values.append(constant(".zero_points", "zero_points", ir.DataType.UINT8, (columns, -(-shape[1] // 2))))
    return _Stored(tuple(values), bits, block)


def _replace(graph: ir.Graph, linear: Linear, stored: _Stored) -> None:
    node, (rows, columns) = linear.node, linear.weight.shape
    product = ir.node(
        "MatMulNBits", [node.inputs[0], *stored.values],
        {"K": rows, "N": columns, "bits": stored.bits, "block_size": stored.block_size,
         "accuracy_level": _ACCURACY_LEVEL},
        domain=ONNXRUNTIME_DOMAIN, name=node.name,
    )  # fmt: skip
    old, new = node.outputs[0], product.outputs[0]
    new.shape, new.type, new.name = old.shape, old.type, old.name
    ir.convenience.replace_nodes_and_values(graph, node, [node], [product], [old], [new])
