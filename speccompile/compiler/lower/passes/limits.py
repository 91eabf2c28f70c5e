"""Sampling limits of a row (top-k, top-p, min-p), applied among its most probable tokens."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes


class Limits(NamedTuple):
    """Limits [B, 1, 1] each, float32 except count, int64: top_k, top_p, min_p."""

    count: ir.Value
    share: ir.Value
    part: ir.Value


def limits_of(nodes: Nodes, *limits: ir.Value) -> Limits:
    """Return the limits of top_k, top_p, min_p [B], shaped for all rows."""
    return Limits(*(nodes("Reshape", limit, nodes.integers(-1, 1, 1)) for limit in limits))


def is_limited(nodes: Nodes, limits: Limits) -> ir.Value:
    """Return bool [B, 1, 1]: whether any limit is set."""
    count = nodes("Greater", limits.count, nodes.integers(0))
    share, part = (
        nodes("Less", limits.share, nodes.number(1.0)),
        nodes("Greater", limits.part, nodes.number(0.0)),
    )
    return nodes("Or", nodes("Or", share, part), count)


def among(nodes: Nodes, best: ir.Value, count: int, limits: Limits) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Apply the limits to best [B, R, count], most probable first. Return threshold, mass and whether no other token
    reaches the threshold, [B, R, 1].

    The other tokens are assumed to complete a sum of one.
    """
    zero, one, axis = nodes.number(0.0), nodes.number(1.0), nodes.integers(2)
    places = nodes("Constant", value=ir.tensor(np.arange(count)))
    first = nodes("Slice", best, nodes.integers(0), nodes.integers(1), axis)
    least = nodes("Slice", best, nodes.integers(count - 1), nodes.integers(count), axis)
    has_count = nodes("Greater", limits.count, nodes.integers(0))
    # Compare with the number at a rank: the rank alone would separate equal numbers.
    is_last = nodes("Equal", places, nodes("Sub", limits.count, nodes.integers(1)))  # [B, 1, count]
    at_count = nodes("ReduceMax", nodes("Where", is_last, best, zero), axis, keepdims=1)  # 0 beyond the candidates
    left = nodes("Where", nodes("GreaterOrEqual", best, at_count), best, zero)
    total = nodes("Where", has_count, nodes("ReduceSum", left, axis, keepdims=1), one)
    above = nodes("Sub", nodes("CumSum", left, nodes("Constant", value_int=2)), left)
    is_in = nodes("Less", above, nodes("Mul", limits.share, total))
    is_kept = nodes("And", nodes("Or", is_in, nodes("Equal", best, first)), nodes("Greater", left, zero))
    lowest = nodes("ReduceMin", nodes("Where", is_kept, left, first), axis, keepdims=1)
    has_share = nodes("Less", limits.share, one)
    at_share = nodes("Where", has_share, lowest, at_count)
    limit = nodes("Max", at_share, nodes("Mul", limits.part, first))

    limited = is_limited(nodes, limits)
    threshold = nodes("Where", limited, limit, zero)
    chosen = nodes("Where", nodes("GreaterOrEqual", best, threshold), best, zero)
    mass = nodes("Where", limited, nodes("ReduceSum", chosen, axis, keepdims=1), one)
    knows_total = nodes("Or", nodes("Not", has_count), nodes("Greater", at_count, least))
    is_enough = nodes("And", nodes("Greater", limit, least), knows_total)
    return threshold, mass, nodes("Or", is_enough, nodes("Not", limited))
