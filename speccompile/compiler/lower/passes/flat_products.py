"""Remove the flattening around products."""

import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by


def flat_products(model: ir.Model) -> int:
    """Before: y = Reshape(Linear(Reshape(x), weight, ..)), x and y [B, T, ..], between them [B T, ..]. After: y =
    Linear(x, weight, ..).

    torch flattens the input, because it multiplies only matrices.
    """
    return rewrite_nodes(model, "", "Reshape", _whole)


def _whole(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    flat = node.inputs[0]
    product = None if flat is None else flat.producer()
    if product is None or product.domain != DOMAIN or not product.op_type.startswith("Linear"):
        return None
    rows = made_by(product.inputs[0], "Reshape")
    source = None if rows is None else rows.inputs[0]
    attributes = {name: each.as_int() for name, each in product.attributes.items()}
    if source is None or len(flat.uses()) != 1:
        return None
    tokens = _tokens(source, attributes["depth"])
    if tokens is None or tokens != _tokens(node.outputs[0], attributes["columns"]):
        return None
    given = [value for value in product.inputs[1:] if value is not None]
    return nodes(product.op_type, source, *given, domain=DOMAIN, **attributes)


def _tokens(rows: ir.Value, width: int) -> list[int | ir.SymbolicDim] | None:
    """Return [B, T] of rows [B, T, width]; None if they are not."""
    shape = rows.shape
    return list(shape[:2]) if shape is not None and len(shape) == 3 and shape[2] == width else None
