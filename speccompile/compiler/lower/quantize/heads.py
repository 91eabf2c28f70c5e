"""Split a product with one matrix per head into one linear layer per head."""

from typing import NamedTuple

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by, number
from speccompile.compiler.lower.quantize.linear import FLOATS

_MATRICES = 3  # axes of a stack of matrices
_SWAPPED = (0, 2, 1)


class _Stack(NamedTuple):
    """Rows from `start` to `stop` of each of `heads` blocks of `rows` rows, in a weight [heads * rows, C]."""

    weight: ir.Value
    heads: int
    rows: int
    start: int
    stop: int


def split_heads(model: ir.Model) -> int:
    """Before: y = MatMul(x [B, N, T, K], Slice(Reshape(weight, [N, rows, C]), start .. stop)), the slices perhaps
    transposed, weight [N * rows, C] a constant. Latent attention reads one weight in two such ways.

    After: y = Concat over heads(MatMul(x_n, Slice(weight, rows of head n))), x_n of Split(x): each is an ordinary
    linear layer, which is quantized, and whose rows do not depend on neighboring rows.
    """
    return rewrite_nodes(model, "", "MatMul", _split)


def _split(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    x, matrices = node.inputs
    turned = made_by(matrices, "Transpose")
    if turned is not None and tuple(turned.attributes["perm"].as_ints()) != _SWAPPED:
        return None
    stack = _stack(matrices if turned is None else turned.inputs[0])
    if stack is None or x is None or x.shape is None or len(x.shape) != _MATRICES + 1 or x.shape[1] != stack.heads:
        return None
    parts = nodes.several(stack.heads, "Split", x, axis=1, num_outputs=stack.heads)
    products = []
    for head, part in enumerate(parts):
        part.type, part.shape = x.type, ir.Shape([x.shape[0], 1, *x.shape[2:]])
        first = head * stack.rows
        bounds = (nodes.integers(first + edge) for edge in (stack.start, stack.stop))
        weight = nodes("Slice", stack.weight, *bounds, nodes.integers(0))
        made = nodes("MatMul", part, weight if turned is None else nodes("Transpose", weight, perm=[1, 0]))
        width = None if node.outputs[0].shape is None else node.outputs[0].shape[3]
        made.type, made.shape = x.type, ir.Shape([x.shape[0], 1, x.shape[2], width])
        products.append(made)
    return nodes("Concat", *products, axis=1)


def _stack(value: ir.Value | None) -> _Stack | None:
    part = made_by(value, "Slice")
    reshape = None if part is None else made_by(part.inputs[0], "Reshape")
    weight = None if reshape is None else reshape.inputs[0]
    if part is None or reshape is None or weight is None or not _is_matrix(weight):
        return None
    shape, bounds = reshape.outputs[0].shape, [_integer(bound) for bound in part.inputs[1:]]
    if shape is None or len(shape) != _MATRICES or None in bounds:
        return None
    heads, rows, columns = (size if isinstance(size, int) else 0 for size in shape)
    start, stop, axis, step = (*(bound or 0 for bound in bounds), 1)[:4]
    if (axis, step) != (1, 1) or min(start, stop) < 0 or weight.shape != (heads * rows, columns):
        return None
    return _Stack(weight, heads, rows, start, min(stop, rows))


def _is_matrix(value: ir.Value) -> bool:
    return value.is_initializer() and value.dtype in FLOATS and value.shape is not None and len(value.shape) == 2


def _integer(value: ir.Value | None) -> int | None:
    """Return a constant integer, cast and reshaped as in the trace."""
    for op in ("Reshape", "Cast"):
        node = made_by(value, op)
        value = value if node is None else node.inputs[0]
    found = number(value)
    return None if found is None else int(found)
