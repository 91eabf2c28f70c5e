"""Rotary position embedding in one node."""

from typing import NamedTuple

import onnx_ir as ir

from speccompile.lower.passes import Nodes, replace_each, static_size
from speccompile.lower.passes.matching import Bound, Op, made_by, match, numbers

_SUM = Op("Add", Op("Mul", "x", "cos"), Op("Mul", "turned", "sin"))
_TURNED_HALVES = Op("Concat", Op("Neg", "second"), "first")
_TURNED_PAIRS = Op("Reshape", Op("Concat", Op("Unsqueeze", Op("Neg", "second"), -1), Op("Unsqueeze", "first", -1)))
_SCALED = Op("Mul", "table", "factor")
_REPEATED = Op("Concat", "half", "half")
_REPEATED_PAIRS = Op("Reshape", Op("Expand", Op("Unsqueeze", "half", "axis"), "times"))


def rotary_embedding(model: ir.Model) -> int:
    """Before: y = x * cos + Concat(-second, first) * sin, first and second the halves of x. After:
    y = RotaryEmbedding(x, cos', sin'), cos' and sin' without the copy that made them as wide as x.

    Also where the pairs to turn are neighbours instead of halves.
    """

    def rotate(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        found = match(_SUM, node.outputs[0])
        interleaved = None if found is None else _turns(found["x"], found["turned"])
        if found is None or interleaved is None:
            return None
        cos, sin = (_table(nodes, found[name], interleaved) for name in ("cos", "sin"))
        if cos is None or sin is None:
            return None
        return nodes("RotaryEmbedding", found["x"], cos, sin, interleaved=int(interleaved))

    return replace_each(model, "", "Add", rotate)


def partial_rotary_embedding(model: ir.Model) -> int:
    """Before: y = Concat(RotaryEmbedding(Slice(x, 0, r), ..), Slice(x, r, D)). After: y = RotaryEmbedding(x, ..), which
    is told to turn r columns alone.
    """

    def widen(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        rotary = made_by(node.inputs[0], "RotaryEmbedding")
        rest = _cut(node.inputs[1]) if rotary is not None and len(node.inputs) == 2 else None
        if rotary is None or rest is None:
            return None
        turned, width = static_size(rotary.inputs[0], 3), static_size(rest.source, 3)
        if rest[1:] != (turned, width, 1) or _cut(rotary.inputs[0]) != (rest.source, 0, turned, 1):
            return None
        tables, interleaved = rotary.inputs[1:3], rotary.attributes["interleaved"].as_int()
        columns = {} if turned == width else {"rotary_embedding_dim": turned}
        return nodes("RotaryEmbedding", rest.source, *tables, interleaved=interleaved, **columns)

    return replace_each(model, "", "Concat", widen)


class _Cut(NamedTuple):
    source: ir.Value
    start: int
    stop: int
    step: int


def _cut(value: ir.Value | None) -> _Cut | None:
    """Where a value of four axes was cut out of another along the last one."""
    node = None if value is None else made_by(value, "Slice")
    source = None if node is None else node.inputs[0]
    if node is None or source is None or source.shape is None or len(source.shape) != 4:
        return None
    bounds = [numbers(given) for given in node.inputs[1:]]
    if len(bounds) < 3 or any(bound is None or len(bound) != 1 for bound in bounds):
        return None
    start, stop, axis, step = [int(bound[0]) for bound in (*bounds, [1])[:4]]
    return _Cut(source, start, min(stop, static_size(source, 3)), step) if axis in (3, -1) else None


def _turns(x: ir.Value, turned: ir.Value) -> bool | None:
    """Whether `turned` is x with its neighbouring columns turned (True), or its halves (False); None when neither."""
    for pattern, interleaved in ((_TURNED_HALVES, False), (_TURNED_PAIRS, True)):
        found = match(pattern, turned)
        if found is not None and x.shape is not None and len(x.shape) == 4:
            width = static_size(x, 3)
            first, second = (0, width, 2), (1, width, 2)
            if not interleaved:
                first, second = (0, width // 2, 1), (width // 2, width, 1)
            if _cut(found["first"]) == (x, *first) and _cut(found["second"]) == (x, *second):
                return interleaved
    return None


def _table(nodes: Nodes, value: ir.Value, interleaved: bool) -> ir.Value | None:
    """[B, T, r / 2] for a value [B, 1, T, r] that holds it twice; None when it cannot be told that it does."""
    node = made_by(value, "Unsqueeze")
    if node is not None and numbers(node.inputs[1]) == [1]:
        return _half(nodes, node.inputs[0], interleaved)
    half = _half(nodes, value, interleaved)
    return None if half is None else nodes("Squeeze", half, nodes.integers(1))


def _half(nodes: Nodes, value: ir.Value, interleaved: bool) -> ir.Value | None:
    """What a value repeats along its last axis: computed from what the repetition was made of."""
    for function in ("Cos", "Sin"):
        if (node := made_by(value, function)) is not None:
            half = _half(nodes, node.inputs[0], interleaved)
            return None if half is None else nodes(function, half)
    scaled = match(_SCALED, value)
    if scaled is not None and numbers(scaled["factor"]) is not None:
        half = _half(nodes, scaled["table"], interleaved)
        return None if half is None else nodes("Mul", half, scaled["factor"])
    repeated = match(_REPEATED_PAIRS if interleaved else _REPEATED, value)
    return repeated["half"] if repeated is not None and _is_twice(value, repeated, interleaved) else None


def _is_twice(value: ir.Value, repeated: Bound, interleaved: bool) -> bool:
    half = repeated["half"]
    if half.shape is None or value.shape is None or len(half.shape) != len(value.shape):
        return False
    last = len(half.shape)
    if interleaved and (numbers(repeated["axis"]), numbers(repeated["times"])) != ([last], [1] * last + [2]):
        return False
    return static_size(value, -1) == 2 * static_size(half, -1)
