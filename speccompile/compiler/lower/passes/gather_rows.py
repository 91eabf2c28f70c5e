"""Gather whole rows at once."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by
from speccompile.contract import BATCH


def gather_rows(model: ir.Model) -> int:
    """Before: y = GatherElements<axis = 1>(x, Expand(rows, ..)), x [B, R, V], rows int64 [B, P, 1].

    After: y = GatherND<batch_dims = 1>(x, rows): a row is copied, where GatherElements reads an index for each number.
    """
    return rewrite_nodes(model, "", "GatherElements", _gather)


def _gather(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    x, index = node.inputs
    spread = made_by(index, "Expand")
    rows = None if spread is None else spread.inputs[0]
    if x is None or rows is None or node.attributes.get_int("axis", 0) != 1:
        return None
    if not _is_row_index(x, rows) or not _is_whole(x, node.outputs[0]):
        return None
    return nodes("GatherND", x, rows, batch_dims=1)


def _is_row_index(x: ir.Value, rows: ir.Value) -> bool:
    """Return whether rows is [B, P, 1] for x [B, R, V]: one index for all of V, and one per batch slot."""
    if x.shape is None or rows.shape is None or len(x.shape) != 3 or len(rows.shape) != 3:
        return False
    is_known = isinstance(x.shape[0], int) or x.shape[0] == BATCH
    return rows.shape[2] == 1 and is_known and rows.shape[0] == x.shape[0]


def _is_whole(x: ir.Value, y: ir.Value) -> bool:
    assert x.shape is not None
    return y.shape is not None and isinstance(x.shape[2], int) and y.shape[2] == x.shape[2]
