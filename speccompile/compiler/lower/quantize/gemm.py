"""Split Gemm into MatMul and Add."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes


def split_gemm(model: ir.Model) -> int:
    """Before: y = Gemm(x, weight, bias). After: y = Add(MatMul(x, weight), bias), with a Transpose if Gemm has one.

    The trace has a Gemm for layers whose input has two axes: those of GPT-2, the routers of experts.
    """
    return rewrite_nodes(model, "", "Gemm", _split)


def _split(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    x, weight, *rest = node.inputs
    plain = {"transA": 0, "alpha": 1.0, "beta": 1.0}
    if any(name in node.attributes and node.attributes[name].value != value for name, value in plain.items()):
        return None
    assert x is not None
    assert weight is not None
    if node.attributes.get_int("transB", 0):
        weight = nodes("Transpose", weight, perm=[1, 0])
    product = nodes("MatMul", x, weight)
    if not rest or rest[0] is None:
        return product
    product.shape, product.type = node.outputs[0].shape, node.outputs[0].type
    return nodes("Add", product, rest[0])
