"""Linear layers out of products whose weight is on the left."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes

_MATRIX = 2


def left_products(model: ir.Model) -> int:
    """Before: y = MatMul(weight, x), weight [N, K], x [.., K, T]. After: y = Transpose(MatMul(Transpose(x),
    Transpose(weight))), a linear layer over the rows [.., T, K].

    Linear layers are quantized, and computed in one order of summation whatever the window. Mamba's steps of time are
    multiplied so.
    """
    return rewrite_nodes(model, "", "MatMul", _turned)


def _turned(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    weight, columns = node.inputs
    if weight is None or not weight.is_initializer() or columns is None:
        return None
    if weight.shape is None or len(weight.shape) != _MATRIX or columns.shape is None or len(columns.shape) < _MATRIX:
        return None
    swapped = [*range(len(columns.shape) - 2), len(columns.shape) - 1, len(columns.shape) - 2]
    rows = nodes("Transpose", columns, perm=swapped)
    return nodes("Transpose", nodes("MatMul", rows, nodes("Transpose", weight, perm=[1, 0])), perm=swapped)
