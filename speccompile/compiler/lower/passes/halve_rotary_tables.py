"""Cosines and sines of half a head's width, for rotation of neighbors."""

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Bound, Op, made_by, match, match_slice, number, numbers

_DOUBLE = {kind: Op("Mul", Op(kind, Op("Concat", "angles", "angles")), "scale") for kind in ("Cos", "Sin")}
_SPREAD = {kind: Op("Unsqueeze", table, "axis") for kind, table in _DOUBLE.items()}


def halve_rotary_tables(model: ir.Model) -> int:
    """Before: table = Squeeze(Slice(Unsqueeze(Cos(Concat(angles, angles)) * scale), first half)), or table =
    Slice(Cos(Concat(angles, angles)) * scale, first half), as in DeepSeek-V3. After: table = Cos(angles) * scale; sines
    likewise.

    Before: table = Cos(Concat(angles, angles)) * scale, read whole, as in Gemma 4. After: table = Concat(half, half),
    half = Cos(angles) * scale.

    The halves are equal: transformers concatenates them for heads whose halves are rotated into each other.
    """
    halves = rewrite_nodes(model, "", "Squeeze", _squeezed_half) + rewrite_nodes(model, "", "Slice", _half)
    common.RemoveUnusedNodesPass()(model)  # readers of whole tables that have halves by now, here or in a pass before
    return halves + rewrite_nodes(model, "", "Mul", _whole)


def _squeezed_half(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    if len(node.inputs) != 2:
        return None
    found = _first_half(nodes, node.inputs[0], _SPREAD)
    return found[1] if found is not None and numbers(found[0]["axis"]) == numbers(node.inputs[1]) else None


def _half(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    found = _first_half(nodes, node.outputs[0], _DOUBLE)
    return None if found is None else found[1]


def _whole(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    for kind, pattern in _DOUBLE.items():
        found = match(pattern, node.outputs[0])
        width = None if found is None or found["angles"].shape is None else found["angles"].shape[-1]
        if found is not None and isinstance(width, int) and _is_half(found, width):
            half = nodes("Mul", nodes(kind, found["angles"]), found["scale"])
            return nodes("Concat", half, half, axis=-1)
    return None


def _first_half(nodes: Nodes, half: ir.Value | None, tables: dict[str, Op]) -> tuple[Bound, ir.Value] | None:
    """Append the table of half the width, if a value is the first half of one of these; return what matched too."""
    taken = match_slice(half)
    if taken is None or (taken.start, taken.step) != (0, 1):
        return None
    for kind, pattern in tables.items():
        found = match(pattern, taken.source)
        if found is not None and _is_half(found, taken.stop):
            return found, nodes("Mul", nodes(kind, found["angles"]), found["scale"])
    return None


def _is_half(found: dict[str, ir.Value], width: int) -> bool:
    """Return whether angles of this width are concatenated along their last axis, and scaled by one number."""
    angles = found["angles"]
    if angles.shape is None or angles.shape[-1] != width or number(found["scale"]) is None:
        return False
    joined = next(each for each in angles.consumers() if made_by(each.outputs[0], "Concat"))
    return joined.attributes["axis"].as_int() in (-1, len(angles.shape) - 1)
