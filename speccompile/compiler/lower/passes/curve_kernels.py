"""Sines and cosines of any angles by the kernel of rotary tables."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, replace_value, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by


def curve_kernels(model: ir.Model) -> int:
    """Before: cosines = Cos(angles), sines = Sin(angles), angles of any shape, as those of Qwen3.5 on three axes.
    After: both from speccompile.native::RotaryTables(1, flat angles), and back to the shape.

    ONNX Runtime computes numbers that do not fill a vector in another way.
    """
    return rewrite_nodes(model, "", "Cos", _cosines) + rewrite_nodes(model, "", "Sin", _sines)


def _cosines(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    tables, angles = _tables(nodes, node), node.inputs[0]
    if tables is None or angles is None:
        return None
    for other in angles.consumers():
        if made_by(other.outputs[0], "Sin"):
            replace_value(other.outputs[0], tables[1])
    return tables[0]


def _sines(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    tables = _tables(nodes, node)
    return None if tables is None else tables[1]


def _tables(nodes: Nodes, node: ir.Node) -> list[ir.Value] | None:
    """Append cosines and sines of computed float32 angles, unless passes before have left the node behind."""
    angles, result = node.inputs[0], node.outputs[0]
    if not result.uses() and not result.is_graph_output():
        return None
    if angles is None or angles.producer() is None or angles.dtype != ir.DataType.FLOAT:
        return None
    one = nodes("Constant", value=ir.tensor(np.ones((1, 1), np.int64)))
    flat = nodes("Reshape", angles, nodes.integers(-1))
    made = nodes.several(2, "RotaryTables", one, flat, domain=DOMAIN, scale=1.0)
    shape = nodes("Shape", angles)
    return [nodes("Reshape", table, shape) for table in made]
