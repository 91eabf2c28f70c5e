"""Reshape targets that the trace knows."""

import onnx_ir as ir

from speccompile.lower.passes import Nodes, replace_each
from speccompile.lower.passes.matching import numbers


def static_shapes(model: ir.Model) -> int:
    """Before: Reshape(x, Concat(1, Shape(window), -1, 64)). After: Reshape(x, [1, -1, 4, 64]).

    Where at most one size of the result varies. The arithmetic on shapes is left without a reader.
    """

    def reshape(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        x, shape = node.inputs[0], node.outputs[0].shape
        if x is None or shape is None:
            return None
        sizes = [size if isinstance(size, int) else -1 for size in shape]
        if sizes.count(-1) > 1 or 0 in sizes or sizes == numbers(node.inputs[1]):
            return None
        return nodes("Reshape", x, nodes.integers(*sizes))

    return replace_each(model, "", "Reshape", reshape)
