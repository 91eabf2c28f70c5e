"""Merge a chain of reshapes without data movement into one Reshape."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by, numbers


def merge_reshapes(model: ir.Model) -> int:
    """Before: Reshape(Transpose(Reshape(x, [1, 1, 4, 64])), [1, 2, 2, 64]). After: Reshape(x, [1, 2, 2, 64]).

    A Transpose moves nothing where the axes that are longer than one keep their order: the heads of a single token.
    """
    return rewrite_nodes(model, "", "Transpose", _still) + rewrite_nodes(model, "", "Reshape", _merged)


def _still(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    (x,), shape = node.inputs, node.outputs[0].shape
    if x is None or x.shape is None or shape is None:
        return None
    long_axes = [axis for axis in node.attributes["perm"].as_ints() if x.shape[axis] != 1]
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    if long_axes != sorted(long_axes) or sizes.count(-1) > 1 or 0 in sizes:
        return None
    return nodes("Reshape", x, nodes.integers(*sizes))


def _merged(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    inner, target = made_by(node.inputs[0], "Reshape"), node.inputs[1]
    x = None if inner is None else inner.inputs[0]
    sizes = numbers(target)
    if x is None or target is None or sizes is None or 0 in sizes:  # 0 stands for an input's size
        return None
    return nodes("Reshape", x, target)
