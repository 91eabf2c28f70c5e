"""Commit of persistent states, for engines that write them to a separate buffer."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.contract import PERSISTENT_PREFIX


def commit_persistent(model: ir.Model) -> int:
    """Before: updated = speccompile::Commit<axis = 1>(kept, rows, length), int64 [B, S], kept a persistent drafter
    state.

    After: updated = ScatterElements<axis = 1>(kept, Unsqueeze(length) + Range(rows of `rows`), rows).

    The graph may read such states before their update, in any order: none is updated in place (`contract`).
    """

    def scatter(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        buffer, rows, length = node.inputs
        assert buffer is not None
        assert rows is not None
        assert length is not None
        if not (buffer.name or "").startswith(PERSISTENT_PREFIX):
            return None
        count = nodes("Gather", nodes("Shape", rows), nodes("Constant", value_int=1))
        places = nodes("Range", nodes("Constant", value_int=0), count, nodes("Constant", value_int=1))
        indices = nodes("Add", nodes("Unsqueeze", length, nodes.integers(1)), places)
        return nodes("ScatterElements", buffer, indices, rows, axis=1)

    return rewrite_nodes(model, neutral.DOMAIN, "Commit", scatter)
