"""Linear layers out of products whose weight has a matrix for each head."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by, numbers

_SWAPPED = [0, 2, 1]


def head_products(model: ir.Model) -> int:
    """Before: y = MatMul(x, weight), x [H, T, K], weight [H, K, N], also as Transpose of [H, N, K]. After: y = Concat
    of, for each head h, MatMul(x[h], weight[h]).

    Before: y = MatMul(Unsqueeze(weight, 1), x), weight [H, N, K], x [H, B, K, T]. After: y = Concat of, for each head
    h, MatMul(Transpose(x[h]), Transpose(weight[h])), transposed back.

    These are linear layers, as experts are: quantized as others, and computed in one order of summation whatever the
    window. Llama 4's experts are multiplied in the first way, Zamba's heads of Mamba in the second.
    """
    return rewrite_nodes(model, "", "MatMul", _by_head)


def _by_head(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    first, second = node.inputs
    turned = made_by(second, "Transpose")
    is_turned = turned is not None and list(turned.attributes["perm"].as_ints()) == _SWAPPED
    weight = turned.inputs[0] if turned is not None and is_turned else second
    if _has_heads(weight, first, rank=3):

        def right(rows: ir.Value, matrix: ir.Value) -> ir.Value:
            return nodes("MatMul", rows, nodes("Transpose", matrix, perm=[1, 0]) if is_turned else matrix)

        return _each(nodes, weight, first, right)
    spread = made_by(first, "Unsqueeze")
    if spread is None or numbers(spread.inputs[1]) != [1] or not _has_heads(spread.inputs[0], second, rank=4):
        return None

    def left(columns: ir.Value, matrix: ir.Value) -> ir.Value:
        tokens = nodes("Transpose", columns, perm=_SWAPPED)
        return nodes("Transpose", nodes("MatMul", tokens, nodes("Transpose", matrix, perm=[1, 0])), perm=_SWAPPED)

    return _each(nodes, spread.inputs[0], second, left)


def _has_heads(weight: ir.Value | None, rows: ir.Value | None, rank: int) -> bool:
    """Return whether a weight has a matrix for each entry of the first of the rows' axes, of which there are `rank`."""
    if weight is None or rows is None or not weight.is_initializer() or weight.shape is None or rows.shape is None:
        return False
    return len(weight.shape) == 3 and len(rows.shape) == rank and rows.shape[0] == weight.shape[0]


def _each(
    nodes: Nodes, weight: ir.Value | None, rows: ir.Value | None, product: Callable[[ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """Append the products of all heads, side by side."""
    assert weight is not None
    assert weight.shape is not None
    assert rows is not None
    heads = []
    for index in range(int(weight.shape[0])):
        head = nodes("Constant", value=ir.tensor(np.array(index, np.int64)))
        found = product(nodes("Gather", rows, head, axis=0), nodes("Gather", weight, head, axis=0))
        heads.append(nodes("Unsqueeze", found, nodes.integers(0)))
    return nodes("Concat", *heads, axis=0)
