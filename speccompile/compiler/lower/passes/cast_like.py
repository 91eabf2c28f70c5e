"""Replace CastLike of the trace by Cast, if the graph shows the wanted type."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes

# Ops whose result has the type of one of their inputs, and the index of that input. The trace leaves their types open.
_SAME_TYPE = {"Add": 0, "Div": 0, "Identity": 0, "Mod": 0, "Mul": 0, "Neg": 0, "Reshape": 0, "Sub": 0, "Where": 1}


def cast_like(model: ir.Model) -> int:
    """Before: y = CastLike(x, z), z known to be int64. After: y = Cast<to = int64>(x).

    ONNX Runtime cannot fold CastLike of a constant, warns once per node, and computes it every round. If the graph does
    not show the type of z, the node stays.
    """

    def cast(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        wanted = _type(node.inputs[1])
        return None if wanted is None else nodes("Cast", node.inputs[0], to=int(wanted))

    return rewrite_nodes(model, "", "CastLike", cast)


def _type(value: ir.Value | None) -> ir.DataType | None:
    """Return the element type of a value, None if the graph does not show it."""
    if value is None:
        return None
    if value.dtype is not None:
        return value.dtype
    if (constant := ir.convenience.get_const_tensor(value)) is not None:
        return constant.dtype
    match value.producer():
        case ir.Node(op_type="Cast") as node:
            return ir.DataType(node.attributes["to"].as_int())
        case ir.Node(op_type="Shape"):
            return ir.DataType.INT64
        case ir.Node(op_type=op) as node if op in _SAME_TYPE:
            return _type(node.inputs[_SAME_TYPE[op]])
    return None
