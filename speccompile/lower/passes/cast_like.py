"""CastLike, as the trace writes it, where the wanted type is known anyway."""

import onnx_ir as ir

from speccompile.lower.passes import Nodes, replace_each


def cast_like(model: ir.Model) -> int:
    """Before: y = CastLike(x, z), z known to be int64. After: y = Cast<to = int64>(x).

    ONNX Runtime cannot fold CastLike of a constant, says so once a node, and computes it every round.
    """

    def cast(nodes: Nodes, node: ir.Node) -> ir.Value:
        wanted = node.inputs[1]
        if wanted is None or wanted.dtype is None:
            raise TypeError(f"{node.name}: the type that CastLike asks for is unknown")
        return nodes("Cast", node.inputs[0], to=int(wanted.dtype))

    return replace_each(model, "", "CastLike", cast)
