"""Cosines and sines of half a head's width, for rotation of neighbors."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, made_by, match, match_slice, number, numbers

_DOUBLE = {
    kind: Op("Unsqueeze", Op("Mul", Op(kind, Op("Concat", "angles", "angles")), "scale"), "axis")
    for kind in ("Cos", "Sin")
}


def halve_rotary_tables(model: ir.Model) -> int:
    """Before: table = Squeeze(Slice(Unsqueeze(Cos(Concat(angles, angles)) * scale), first half)). After: table =
    Cos(angles) * scale; sines likewise.

    The halves are equal: transformers concatenates them for heads whose halves are rotated into each other.
    """
    return rewrite_nodes(model, "", "Squeeze", _half)


def _half(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    taken = match_slice(node.inputs[0])
    if taken is None or (taken.start, taken.step) != (0, 1) or len(node.inputs) != 2:
        return None
    for kind, pattern in _DOUBLE.items():
        found = match(pattern, taken.source)
        if found is not None and numbers(found["axis"]) == numbers(node.inputs[1]) and _is_half(found, taken.stop):
            return nodes("Mul", nodes(kind, found["angles"]), found["scale"])
    return None


def _is_half(found: dict[str, ir.Value], width: int) -> bool:
    """Return whether angles of this width are concatenated along their last axis, and scaled by one number."""
    angles = found["angles"]
    if angles.shape is None or angles.shape[-1] != width or number(found["scale"]) is None:
        return False
    joined = next(each for each in angles.consumers() if made_by(each.outputs[0], "Concat"))
    return joined.attributes["axis"].as_int() in (-1, len(angles.shape) - 1)
