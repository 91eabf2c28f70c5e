"""Products that flatten what goes into them, and unflatten what comes out."""

import onnx_ir as ir

from speccompile.lower.native import DOMAIN
from speccompile.lower.passes import Nodes, replace_each
from speccompile.lower.passes.matching import made_by


def flat_products(model: ir.Model) -> int:
    """Before: y = Reshape(Linear(Reshape(x), weight, ..)), x and y [B, T, ..], between them [B T, ..].
    After: y = Linear(x, weight, ..).

    torch multiplies matrices alone.
    """
    return replace_each(model, "", "Reshape", _whole)


def _whole(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    flat = node.inputs[0]
    product = None if flat is None else flat.producer()
    if product is None or product.domain != DOMAIN or not product.op_type.startswith("Linear"):
        return None
    rows = made_by(product.inputs[0], "Reshape")
    source, y = None if rows is None else rows.inputs[0], node.outputs[0]
    if source is None or len(flat.uses()) != 1 or not _are_rows(source, y):
        return None
    given = [value for value in product.inputs[1:] if value is not None]
    attributes = {name: each.as_int() for name, each in product.attributes.items()}
    return nodes(product.op_type, source, *given, domain=DOMAIN, **attributes)


def _are_rows(x: ir.Value, y: ir.Value) -> bool:
    """Whether these are rows of the same tokens; what lies between them is flat, so their last axes are whole."""
    if x.shape is None or y.shape is None or len(x.shape) != 3 or len(y.shape) != 3:
        return False
    return x.shape[0] == y.shape[0] and x.shape[1] == y.shape[1]
