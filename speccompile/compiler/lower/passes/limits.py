"""Sampling limits of a row (top-k, top-p, min-p), applied among its most probable tokens."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes


class Limits(NamedTuple):
    """top_k int64, top_p and min_p float32, each [B, 1, 1]."""

    top_k: ir.Value
    top_p: ir.Value
    min_p: ir.Value


def per_row_limits(nodes: Nodes, *limits: ir.Value) -> Limits:
    """Reshape top_k, top_p, min_p [B] for all rows of a sequence."""
    return Limits(*(nodes("Reshape", limit, nodes.integers(-1, 1, 1)) for limit in limits))


def is_limited(nodes: Nodes, limits: Limits) -> ir.Value:
    """Return bool [B, 1, 1]: whether any limit is set."""
    has_top_k = nodes("Greater", limits.top_k, nodes.integers(0))
    has_top_p = nodes("Less", limits.top_p, nodes.number(1.0))
    has_min_p = nodes("Greater", limits.min_p, nodes.number(0.0))
    return nodes("Or", nodes("Or", has_top_p, has_min_p), has_top_k)


def apply_limits(nodes: Nodes, best: ir.Value, count: int, limits: Limits) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Apply the limits to best [B, R, count], most probable first. Return threshold, mass and whether no other token
    reaches the threshold, [B, R, 1].

    The other tokens are assumed to complete a sum of one.
    """
    zero, one, axis = nodes.number(0.0), nodes.number(1.0), nodes.integers(2)
    places = nodes("Constant", value=ir.tensor(np.arange(count)))
    first = nodes("Slice", best, nodes.integers(0), nodes.integers(1), axis)
    least = nodes("Slice", best, nodes.integers(count - 1), nodes.integers(count), axis)
    has_top_k = nodes("Greater", limits.top_k, nodes.integers(0))
    # Compare with the number at a rank: the rank alone would separate equal numbers.
    is_last = nodes("Equal", places, nodes("Sub", limits.top_k, nodes.integers(1)))  # [B, 1, count]
    at_top_k = nodes("ReduceMax", nodes("Where", is_last, best, zero), axis, keepdims=1)  # 0 beyond the candidates
    left = nodes("Where", nodes("GreaterOrEqual", best, at_top_k), best, zero)
    total = nodes("Where", has_top_k, nodes("ReduceSum", left, axis, keepdims=1), one)
    above = nodes("Sub", nodes("CumSum", left, nodes("Constant", value_int=2)), left)
    is_in = nodes("Less", above, nodes("Mul", limits.top_p, total))
    is_kept = nodes("And", nodes("Or", is_in, nodes("Equal", best, first)), nodes("Greater", left, zero))
    lowest = nodes("ReduceMin", nodes("Where", is_kept, left, first), axis, keepdims=1)
    has_top_p = nodes("Less", limits.top_p, one)
    at_top_p = nodes("Where", has_top_p, lowest, at_top_k)
    limit = nodes("Max", at_top_p, nodes("Mul", limits.min_p, first))

    limited = is_limited(nodes, limits)
    threshold = nodes("Where", limited, limit, zero)
    chosen = nodes("Where", nodes("GreaterOrEqual", best, threshold), best, zero)
    mass = nodes("Where", limited, nodes("ReduceSum", chosen, axis, keepdims=1), one)
    knows_total = nodes("Or", nodes("Not", has_top_k), nodes("Greater", at_top_k, least))
    is_enough = nodes("And", nodes("Greater", limit, least), knows_total)
    return threshold, mass, nodes("Or", is_enough, nodes("Not", limited))
