"""Nucleus for engines that neither sort a vocabulary nor branch."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes, static_size
from speccompile.compiler.lower.passes.limits import Limits, apply_limits, is_limited, per_row_limits

_STEPS = 30  # each halves the range on a logarithmic scale: 69 nats shrink below the spacing of float32
_MOST_SORTED = 2048  # TensorRT sorts 3840 numbers at most
_LOWEST = 1e-30  # less probable tokens are ignored


def nucleus_bisected(model: ir.Model) -> int:
    """Before: threshold, mass = speccompile::Nucleus(probs, top_k, top_p, min_p). After:

        at_k = the highest threshold that top_k tokens reach
        at_p = the highest threshold whose tokens add up to top_p of those that reach at_k
        threshold = Max(at_p, min_p * ReduceMax(probs)), or 0 without limits

    both by bisection: a Loop of one comparison with every probability and a sum. A small vocabulary is sorted instead.
    """

    def rewrite(nodes: Nodes, node: ir.Node) -> list[ir.Value]:
        probs, *rows = node.inputs
        size, limits = static_size(probs, 2), per_row_limits(nodes, *rows)
        return bisected(nodes, probs, limits) if size > _MOST_SORTED else in_order(nodes, probs, size, limits)

    return rewrite_nodes(model, neutral.DOMAIN, "Nucleus", rewrite)


def in_order(nodes: Nodes, probs: ir.Value, size: int, limits: Limits) -> list[ir.Value]:
    """Return threshold and mass, float32 [B, R] each."""
    best, _ = nodes.several(2, "TopK", probs, nodes.integers(size))
    threshold, mass, _ = apply_limits(nodes, best, size, limits)
    return [nodes("Squeeze", value, nodes.integers(2)) for value in (threshold, mass)]


def bisected(nodes: Nodes, probs: ir.Value, limits: Limits) -> list[ir.Value]:
    """Return threshold and mass, float32 [B, R] each."""
    zero, one, last = nodes.number(0.0), nodes.number(1.0), nodes.integers(2)
    best = nodes("ReduceMax", probs, last, keepdims=1)  # [B, R, 1]
    has_top_k = nodes("Greater", limits.top_k, nodes.integers(0))
    has_top_p = nodes("Less", limits.top_p, one)

    top_k = nodes("Cast", limits.top_k, to=int(ir.DataType.FLOAT))
    at_top_k = nodes("Where", has_top_k, _highest(nodes, probs, one, best, top_k), zero)
    wanted = nodes("Mul", limits.top_p, reaching(nodes, probs, at_top_k, probs))
    at_top_p = nodes("Where", has_top_p, _highest(nodes, probs, probs, best, wanted), zero)
    limit = nodes("Max", at_top_k, at_top_p, nodes("Mul", limits.min_p, best))
    limited = is_limited(nodes, limits)
    threshold = nodes("Where", limited, limit, zero)
    mass = nodes("Where", limited, reaching(nodes, probs, threshold, probs), one)
    return [nodes("Squeeze", value, last) for value in (threshold, mass)]


def reaching(nodes: Nodes, probs: ir.Value, threshold: ir.Value, parts: ir.Value) -> ir.Value:
    """Return [B, R, 1]: the sum of the parts whose probability reaches a threshold [B, R, 1]."""
    kept = nodes("Where", nodes("GreaterOrEqual", probs, threshold), parts, nodes.number(0.0))
    return nodes("ReduceSum", kept, nodes.integers(2), keepdims=1)


def _highest(nodes: Nodes, probs: ir.Value, parts: ir.Value, best: ir.Value, wanted: ir.Value) -> ir.Value:
    """Return [B, R, 1]: the highest threshold whose parts add up to at least `wanted`.

    It is at most `best`, which is always kept, and 0 if all parts together are too few.
    """
    lowest = nodes.number(_LOWEST)

    def halve(inner: Nodes, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        # Not Sqrt(low * high), which underflows.
        middle = inner("Mul", inner("Sqrt", low), inner("Sqrt", high))
        is_enough = inner("GreaterOrEqual", reaching(inner, probs, middle, parts), wanted)
        return [inner("Where", is_enough, middle, low), inner("Where", is_enough, high, middle)]

    start = nodes("Add", nodes("Mul", best, nodes.number(0.0)), lowest)
    low, _ = nodes.repeat(_STEPS, halve, start, best)
    found = nodes("Where", nodes("Greater", low, lowest), low, nodes.number(0.0))
    is_best = nodes("GreaterOrEqual", reaching(nodes, probs, best, parts), wanted)
    return nodes("Where", is_best, best, found)
