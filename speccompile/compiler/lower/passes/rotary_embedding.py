"""Rotary position embedding in one node."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Bound, Op, made_by, match, match_slice, numbers

# By the attribute `interleaved`: 0 if the halves of a row are rotated into each other, 1 if its neighbors are.
_TURNED = (
    Op("Concat", Op("Neg", "second"), "first"),
    Op("Reshape", Op("Concat", Op("Unsqueeze", Op("Neg", "second"), -1), Op("Unsqueeze", "first", -1))),
)
_REPEATED = (
    Op("Concat", "half", "half"),
    Op("Reshape", Op("Expand", Op("Unsqueeze", "half", "axis"), "times")),
)
_SCALED = Op("Mul", "table", "factor")


def rotary_embedding(model: ir.Model) -> int:
    """Before: y = x * Cos(Concat(angles, angles)) + Concat(-second, first) * Sin(Concat(angles, angles)), first and
    second the halves of x. After: y = RotaryEmbedding(x, Cos(angles), Sin(angles)).

    Also for rotation of neighbors instead of halves, and for scaled Cos and Sin.
    """
    return rewrite_nodes(model, "", "Add", _rotate)


def _rotate(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    for interleaved, turned in enumerate(_TURNED):
        found = match(Op("Add", Op("Mul", "x", "cos"), Op("Mul", turned, "sin")), node.outputs[0])
        if found is not None and _turns(found, interleaved):
            cos, sin = (_table(nodes, found[name], interleaved) for name in ("cos", "sin"))
            if cos is not None and sin is not None:
                return nodes("RotaryEmbedding", found["x"], cos, sin, interleaved=interleaved)
    return None


def _turns(found: Bound, interleaved: int) -> bool:
    """Return whether `first` and `second` are slices of x [B, N, T, D] as in the pattern."""
    x = found["x"]
    width = None if x.shape is None or len(x.shape) != 4 else x.shape[3]
    if not isinstance(width, int):
        return False
    first, second = ((0, width, 2), (1, width, 2)) if interleaved else ((0, width // 2, 1), (width // 2, width, 1))
    return match_slice(found["first"]) == (x, *first) and match_slice(found["second"]) == (x, *second)


def _table(nodes: Nodes, value: ir.Value, interleaved: int) -> ir.Value | None:
    """Return [B, T, D / 2] for a value [B, 1, T, D] that holds it twice; None if the graph does not show that."""
    node = made_by(value, "Unsqueeze")
    if node is not None and node.inputs[0] is not None and numbers(node.inputs[1]) == [1]:
        return _half(nodes, node.inputs[0], interleaved)
    if value.shape is None or len(value.shape) != 4 or value.shape[1] != 1:  # of heads behind the tokens, [B, T, 1, D]
        return None
    half = _half(nodes, value, interleaved)
    return None if half is None else nodes("Squeeze", half, nodes.integers(1))


def _half(nodes: Nodes, value: ir.Value, interleaved: int) -> ir.Value | None:
    """Return the half that a value holds twice along its last axis, computed from the repeated expression."""
    for function in ("Cos", "Sin"):
        if (found := match(Op(function, "angles"), value)) is not None:
            half = _half(nodes, found["angles"], interleaved)
            return None if half is None else nodes(function, half)
    found = match(_SCALED, value)
    if found is not None and numbers(found["factor"]) is not None:
        half = _half(nodes, found["table"], interleaved)
        return None if half is None else nodes("Mul", half, found["factor"])
    found = match(_REPEATED[interleaved], value)
    return found["half"] if found is not None and _is_twice(value, found, interleaved) else None


def _is_twice(value: ir.Value, found: Bound, interleaved: int) -> bool:
    half, whole = found["half"].shape, value.shape
    if half is None or whole is None or len(half) != len(whole) or not isinstance(half[-1], int):
        return False
    rank = len(half)
    each_twice = not interleaved or (numbers(found["axis"]), numbers(found["times"])) == ([rank], [1] * rank + [2])
    return each_twice and whole[-1] == 2 * half[-1]
