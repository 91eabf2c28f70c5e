"""Products with weights that the lowering left to ONNX Runtime, whose sums depend on the window.

Tiny models may give equal bits by chance where real ones do not: such a product is never exact.
"""

from pathlib import Path

import onnx_ir as ir

from speccompile.compiler.lower.passes import nodes_of
from speccompile.compiler.lower.quantize.linear import FLOATS

OPS = ("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose")
_VIEWS = ("Transpose", "Unsqueeze", "Squeeze", "Reshape", "Gather", "Slice", "Cast", "Identity", "Split")


def loose_products(file: Path) -> list[str]:
    """Return the products of a lowered graph that read a weight in standard operators, as "op weight"."""
    model = ir.load(file)
    found = []
    for op in OPS:
        for node in nodes_of(model.graph, "", op):
            found += [f"{op} {name}" for name in map(_weight, node.inputs[:2]) if name]
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
