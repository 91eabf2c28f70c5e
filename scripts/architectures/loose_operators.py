"""Operators of ONNX Runtime that lowering leaves in a graph, and whose results for a token depend on the window.

A graph with such an operator is not exact, even if a tiny model gives equal bits by chance. ONNX Runtime chooses the
kernel of `PRODUCTS` by the number of rows. The order of summation of `SUMS` depends on the number of tokens and on a
row's alignment in a vector register. `CURVES` compute elements that do not fill a register by other code. All other
operators of ONNX Runtime 1.31 and 1.32 give equal bits for 1 to 33 rows, on one thread and on two, on AVX-512 VNNI and
on AVX2 (`tests/light/test_loose_operators.py`).
"""

from pathlib import Path

import onnx_ir as ir

from speccompile.compiler.lower.passes import nodes_of
from speccompile.compiler.lower.quantize.linear import FLOATS

PRODUCTS = ("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose")
SUMS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
CURVES = ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Log", "Softplus", "Elu", "Selu", "Celu", "Mish")
_VIEWS = ("Transpose", "Unsqueeze", "Squeeze", "Reshape", "Gather", "Slice", "Cast", "Identity", "Split")
_COUNTED = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not")


def loose_operators(file: Path) -> list[str]:
    """Return the products of a lowered graph with a weight, as "op weight", and the sums and curves of computed floats,
    as "op result"."""
    model = ir.load(file)
    found = []
    for op in PRODUCTS:
        for node in nodes_of(model.graph, "", op):
            found += [f"{op} {name}" for name in map(_weight, node.inputs[:2]) if name]
    for op in SUMS + CURVES:
        found += [f"{op} {node.outputs[0].name}" for node in nodes_of(model.graph, "", op) if _is_loose(node.inputs[0])]
    return found


def _weight(value: ir.Value | None) -> str | None:
    """Return the name of the float weight of several axes that a value is a view of."""
    while value is not None and not value.is_initializer():
        node = value.producer()
        if node is None or node.domain or node.op_type not in _VIEWS:
            return None
        value = node.inputs[0]
    is_matrix = value is not None and value.shape is not None and len(value.shape) > 1
    return value.name if value is not None and is_matrix and value.dtype in FLOATS else None


def _is_loose(value: ir.Value | None) -> bool:
    """Return whether a value is computed from floats. Integers and booleans cast to floats are not: sums over them are
    exact in any order."""
    if value is None or value.producer() is None or (value.dtype is not None and value.dtype not in FLOATS):
        return False
    node = value.producer()
    assert node is not None
    source = node.inputs[0] if node.op_type == "Cast" and node.inputs else None
    counted = None if source is None else source.producer()
    return counted is None or counted.op_type not in _COUNTED
