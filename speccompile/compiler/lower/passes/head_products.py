"""Linear layers out of products whose weight has a matrix for each head."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by, numbers


def head_products(model: ir.Model) -> int:
    """Before: y = MatMul(Unsqueeze(weight, 1), x), weight [H, N, K], x [H, B, K, T]. After: y = Concat of, for each
    head h, MatMul(Transpose(x[h]), Transpose(weight[h])), transposed back.

    These are linear layers, as experts are: quantized as others, and computed in one order of summation whatever the
    window. Zamba's heads of Mamba are multiplied so.
    """
    return rewrite_nodes(model, "", "MatMul", _by_head)


def _by_head(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    spread = made_by(node.inputs[0], "Unsqueeze")
    weight, rows = (None if spread is None else spread.inputs[0]), node.inputs[1]
    if spread is None or weight is None or rows is None or numbers(spread.inputs[1]) != [1]:
        return None
    if not weight.is_initializer() or weight.shape is None or len(weight.shape) != 3:
        return None
    if rows.shape is None or len(rows.shape) != 4 or rows.shape[0] != weight.shape[0]:
        return None
    heads = []
    for index in range(int(weight.shape[0])):
        head = nodes("Constant", value=ir.tensor(np.array(index, np.int64)))
        matrix = nodes("Transpose", nodes("Gather", weight, head, axis=0), perm=[1, 0])
        tokens = nodes("Transpose", nodes("Gather", rows, head, axis=0), perm=[0, 2, 1])
        product = nodes("Transpose", nodes("MatMul", tokens, matrix), perm=[0, 2, 1])
        heads.append(nodes("Unsqueeze", product, nodes.integers(0)))
    return nodes("Concat", *heads, axis=0)
