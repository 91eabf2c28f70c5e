"""CastLike, as the trace writes it, where the wanted type can be told from the graph."""

import onnx_ir as ir

from speccompile.lower.passes import Nodes, replace_each

# Ops whose result has the type of one of their inputs, and which. The trace gives their results no type of their own.
_SAME_TYPE = {"Add": 0, "Div": 0, "Identity": 0, "Mod": 0, "Mul": 0, "Neg": 0, "Reshape": 0, "Sub": 0, "Where": 1}


def cast_like(model: ir.Model) -> int:
    """Before: y = CastLike(x, z), z known to be int64. After: y = Cast<to = int64>(x).

    ONNX Runtime cannot fold CastLike of a constant, says so once a node, and computes it every round.
    """

    def cast(nodes: Nodes, node: ir.Node) -> ir.Value:
        return nodes("Cast", node.inputs[0], to=int(_type(node.inputs[1])))

    return replace_each(model, "", "CastLike", cast)


def _type(value: ir.Value | None) -> ir.DataType:
    """The element type of a value. Raises TypeError when the graph does not say."""
    assert value is not None
    if value.dtype is not None:
        return value.dtype
    node = value.producer()
    if node is not None:
        if node.op_type == "Cast":
            return ir.DataType(node.attributes["to"].as_int())
        if node.op_type == "Shape":
            return ir.DataType.INT64
        if node.op_type in _SAME_TYPE:
            return _type(node.inputs[_SAME_TYPE[node.op_type]])
        if (constant := ir.convenience.get_const_tensor(value)) is not None:
            return constant.dtype
    raise TypeError(f"{value.name}: the graph does not say of which type it is")
