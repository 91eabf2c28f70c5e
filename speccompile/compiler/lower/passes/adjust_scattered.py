"""Adjust as a gather and a scatter."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes


def adjust_scattered(model: ir.Model) -> int:
    """Before: adjusted = speccompile::Adjust(logits, tokens, values). After: ScatterElements(logits, tokens,
    GatherElements(logits, tokens) + values).

    The engine writes into the logits themselves where nothing else reads them, and so touches the tokens' alone.
    """

    def rewrite(nodes: Nodes, node: ir.Node) -> ir.Value:
        logits, tokens, values = node.inputs
        after = nodes("Add", nodes("GatherElements", logits, tokens, axis=2), values)
        return nodes("ScatterElements", logits, tokens, after, axis=2)

    return rewrite_nodes(model, neutral.DOMAIN, "Adjust", rewrite)
