"""Fuse cosines and sines of rotary position embeddings into one node."""

import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, replace_value, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, made_by, match, number, numbers

_ANGLES = Op("Mul", Op("Cast", Op("Unsqueeze", "positions", "axis")), "frequencies")
_PLAIN, _SCALED = Op("Cos", _ANGLES), Op("Mul", Op("Cos", _ANGLES), "scale")


def fuse_rotary_tables(model: ir.Model) -> int:
    """Before: cosines = Cos(angles) * scale, sines = Sin(angles) * scale, angles = Cast(Unsqueeze(positions)) *
    frequencies. After: cosines, sines = speccompile.native::RotaryTables(positions, frequencies).

    The sines and cosines of mathematical libraries differ between processors.
    """
    return rewrite_nodes(model, "", "Mul", _scaled) + rewrite_nodes(model, "", "Cos", _plain)


def _scaled(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    found = match(_SCALED, node.outputs[0])
    scale = None if found is None else number(found["scale"])
    if found is None or scale is None:
        return None
    cosine = next(made for value in node.inputs if (made := made_by(value, "Cos")))
    sines = [
        sum_ for sine in _sines(cosine) for sum_ in sine.outputs[0].consumers() if _is_scaled(sum_, found["scale"])
    ]
    return _tables(nodes, node.outputs[0], found, scale, sines)


def _plain(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
        return None  # left over by a scaled one
    found = match(_PLAIN, node.outputs[0])
    return None if found is None else _tables(nodes, node.outputs[0], found, 1.0, _sines(node))


def _sines(cosine: ir.Node) -> list[ir.Node]:
    """Return the sines of the same angles."""
    angles = cosine.inputs[0]
    assert angles is not None
    return [node for node in angles.consumers() if made_by(node.outputs[0], "Sin")]


def _is_scaled(node: ir.Node, scale: ir.Value) -> bool:
    return node.op_type == "Mul" and node.domain == "" and numbers(scale) in [numbers(value) for value in node.inputs]


def _tables(
    nodes: Nodes, cosines: ir.Value, found: dict[str, ir.Value], scale: float, sines: list[ir.Node]
) -> ir.Value | None:
    """Return the cosines; the sines are replaced in place."""
    positions, frequencies = found["positions"], found["frequencies"]
    if positions.shape is None or len(positions.shape) != 2 or numbers(found["axis"]) not in ([2], [-1]):
        return None
    if frequencies.shape is None or len(frequencies.shape) != 1 or positions.dtype != ir.DataType.INT64:
        return None
    made = nodes.several(2, "RotaryTables", positions, frequencies, domain=DOMAIN, scale=scale)
    for value in (cosines, made[1]):
        value.shape, value.type = ir.Shape([*positions.shape, frequencies.shape[0]]), ir.TensorType(ir.DataType.FLOAT)
    for node in sines:
        replace_value(node.outputs[0], made[1])
    return made[0]
