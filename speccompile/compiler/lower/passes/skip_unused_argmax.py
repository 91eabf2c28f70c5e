"""Skip an ArgMax whose result is unused."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by, numbers


def skip_unused_argmax(model: ir.Model) -> int:
    """Before: y = Where(unwanted, 0, ArgMax(x)). After: y = If(any wanted, Where(unwanted, 0, ArgMax(x)), 0).

    Sampling graphs need the best token only in batch slots without a temperature.
    """
    return rewrite_nodes(model, "", "Where", _wanted)


def _wanted(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    unwanted, zero, best = node.inputs
    argmax = made_by(best, "ArgMax")
    if argmax is None or len(argmax.outputs[0].uses()) > 1 or numbers(zero) != [0]:
        return None
    x = argmax.inputs[0]

    def find(inner: Nodes) -> list[ir.Value]:
        found = inner("ArgMax", x, **{name: value.as_int() for name, value in argmax.attributes.items()})
        return [_typed(inner("Where", unwanted, zero, found))]

    def leave_out(inner: Nodes) -> list[ir.Value]:
        shape = inner("Shape", x, start=0, end=-1)
        return [_typed(inner("Expand", zero, shape))]

    return nodes.if_else(nodes.reduce_any(nodes("Not", unwanted)), find, leave_out)[0]


def _typed(value: ir.Value) -> ir.Value:
    value.type = ir.TensorType(ir.DataType.INT64)
    return value
