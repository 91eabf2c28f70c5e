"""One Reshape for a chain that moves nothing."""

import onnx_ir as ir

from speccompile.lower.passes import Nodes, replace_each
from speccompile.lower.passes.matching import made_by, numbers


def merge_reshapes(model: ir.Model) -> int:
    """Before: Reshape(Transpose<0, 2, 1, 3>(Reshape(x, [1, 1, 4, 64])), [1, 2, 2, 64]). After: Reshape(x, [1, 2, 2, 64]).

    A Transpose moves nothing where all axes but one that change their order have size one: a single token's heads.
    """
    return replace_each(model, "", "Transpose", _still) + replace_each(model, "", "Reshape", _merged)


def _still(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    shape, (x,) = node.outputs[0].shape, node.inputs
    if x is None or x.shape is None or shape is None:
        return None
    moved = [axis for axis in node.attributes["perm"].as_ints() if x.shape[axis] != 1]
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    if moved != sorted(moved) or sizes.count(-1) > 1:
        return None
    return nodes("Reshape", x, nodes.integers(*sizes))


def _merged(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    inner, sizes = made_by(node.inputs[0], "Reshape"), numbers(node.inputs[1])
    if inner is None or sizes is None or 0 in sizes:
        return None
    x, target = inner.inputs[0], node.inputs[1]
    assert x is not None
    assert target is not None
    return nodes("Reshape", x, target)
