"""Commit as TensorScatter, which engines execute in place."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes


def commit_scatter(model: ir.Model) -> int:
    """Before: updated = speccompile::Commit<mode>(buffer, rows, length).

    After: updated = TensorScatter<mode>(buffer, rows, length).

    In place when the engine's input and output are bound to the same memory.
    """

    def scatter(nodes: Nodes, node: ir.Node) -> ir.Value:
        axis, mode = node.attributes["axis"].as_int(), node.attributes["mode"].as_string()
        return nodes("TensorScatter", *node.inputs, axis=axis, mode=mode)

    return rewrite_nodes(model, neutral.DOMAIN, "Commit", scatter)
