"""Allow as Where."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes

HIDDEN = -1e30  # step/ops.py


def allow_where(model: ir.Model) -> int:
    """Before: possible = speccompile::Allow(logits, allowed). After: Where(allowed, logits, -1e30).

    One axis of `allowed` is 1 or as long as that of the logits; the engine broadcasts it.
    """

    def rewrite(nodes: Nodes, node: ir.Node) -> ir.Value:
        logits, allowed = node.inputs
        return nodes("Where", allowed, logits, nodes.number(HIDDEN))

    return rewrite_nodes(model, neutral.DOMAIN, "Allow", rewrite)
