"""Sums of activations in one order."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.inferred_type import inferred_type
from speccompile.compiler.lower.passes.matching import number

_WIDEST = 16
"""Largest number of rows that one node adds; as many are added column by column until there are no more than that."""


def ordered_sums(model: ir.Model) -> int:
    """Before: y = ReduceSum(x), over one axis of a fixed size. After: y = Sum(Split(x)), or, where the axis is longer,
    y = Sum(Split(Add(Split(x)))) of its halves.

    Before: y = ReduceMean(x). After: the sum divided by the size.

    ONNX Runtime sums a row in another order where it begins at another place of a vector register, and the rows of one
    token in another order than those of two: the sum of the experts of a token would depend on the window. Additions of
    whole tensors do not.
    """
    return rewrite_nodes(model, "", "ReduceSum", _total) + rewrite_nodes(model, "", "ReduceMean", _mean)


def _total(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    found = _axis(node)
    return None if found is None else _squeezed(nodes, node, _added(nodes, node.inputs[0], *found), found[0])


def _mean(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    found = _axis(node)
    if found is None:
        return None
    mean = nodes("Div", _added(nodes, node.inputs[0], *found), nodes.number(found[1]))
    return _squeezed(nodes, node, mean, found[0])


def _axis(node: ir.Node) -> tuple[int, int] | None:
    """Return the axis of a reduction of float32 and its size; None for a reduction over several axes or of an unknown
    size, or of other numbers, whose sums have no order. The result gets the type that the trace left out."""
    x, axes = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    axis, (dtype, shape) = number(axes), inferred_type(x)
    if shape is None or dtype != ir.DataType.FLOAT or axis is None:
        return None
    place = int(axis) % len(shape)
    size = shape[place]
    if not isinstance(size, int):
        return None
    reduced = [*shape[:place], *[1] * _keeps_axis(node), *shape[place + 1 :]]
    result = node.outputs[0]
    result.type, result.shape = result.type or ir.TensorType(dtype), result.shape or ir.Shape(reduced)
    return place, size


def _added(nodes: Nodes, x: ir.Value | None, axis: int, size: int) -> ir.Value:
    """Append the sum of the slices of one column each; the axis stays."""
    assert x is not None
    while size > _WIDEST:
        half, rest = divmod(size, 2)
        widths = [half, half, rest][: 2 + rest]
        first, second, *odd = nodes.several(len(widths), "Split", x, nodes.integers(*widths), axis=axis)
        x = nodes("Add", first, second)
        if odd:
            x = nodes("Concat", x, *odd, axis=axis)
        size = half + rest
    if size == 1:
        return x
    return nodes("Sum", *nodes.several(size, "Split", x, axis=axis, num_outputs=size))


def _squeezed(nodes: Nodes, node: ir.Node, total: ir.Value, axis: int) -> ir.Value:
    return nodes("Identity", total) if _keeps_axis(node) else nodes("Squeeze", total, nodes.integers(axis))


def _keeps_axis(node: ir.Node) -> bool:
    keeps = node.attributes.get("keepdims")
    return keeps is None or keeps.as_int() != 0
