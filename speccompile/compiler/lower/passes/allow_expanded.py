"""Allow as Expand and Where."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.allow_where import HIDDEN


def allow_expanded(model: ir.Model) -> int:
    """Before: possible = speccompile::Allow(logits, allowed), with V logits in a row. After: Where(Expand(allowed, [1,
    1, V]), logits, -1e30).

    One axis of `allowed` is 1 or V. TensorRT would compile a Where over it for one of the two; an Expand handles both
    at run time.
    """

    def rewrite(nodes: Nodes, node: ir.Node) -> ir.Value:
        logits, allowed = node.inputs
        size = logits.shape[-1]
        assert isinstance(size, int), f"logits {logits.name} have no vocabulary: {logits.shape}"
        return nodes("Where", nodes("Expand", allowed, nodes.integers(1, 1, size)), logits, nodes.number(HIDDEN))

    return rewrite_nodes(model, neutral.DOMAIN, "Allow", rewrite)
