"""Nucleus among the most probable tokens, if they suffice."""

from collections.abc import Sequence

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes, static_size
from speccompile.compiler.lower.passes.blocks import in_blocks
from speccompile.compiler.lower.passes.limits import Limits, apply_limits, is_limited, per_row_limits
from speccompile.compiler.lower.passes.nucleus_bisected import bisected, in_order
from speccompile.compiler.lower.passes.topk_blocks import best_in_blocks, pays

_CANDIDATES = (64, 1024)
"""Numbers of candidates, tried in turn. A nucleus at top_p = 0.95 mostly has fewer than 64 tokens."""


def nucleus_candidates(model: ir.Model) -> int:
    """Before: threshold, mass = speccompile::Nucleus(probs, top_k, top_p, min_p). After:

        threshold, mass = If(any row is limited, If(the 64 best suffice, theirs, If(the 1024 best suffice, theirs,
                          by bisection over all)), (0, 1))

    They suffice if the last of them is below the threshold. Sorting or bisecting the vocabulary takes hundreds of times
    as long as the 64 best. If the search uses blocks, a Draw by that threshold receives the largest probability of each
    block, as its fourth input: `draw_hot_blocks`.
    """
    return rewrite_nodes(model, neutral.DOMAIN, "Nucleus", _nucleus)


def _nucleus(nodes: Nodes, node: ir.Node) -> Sequence[ir.Value]:
    probs, *rows = node.inputs
    size, limits = static_size(probs, 2), per_row_limits(nodes, *rows)
    counts = [count for count in _CANDIDATES if count < size]
    has_limit = nodes.reduce_any(is_limited(nodes, limits))
    if not counts or not pays(size, counts[0]):
        return nodes.if_else(
            has_limit, lambda inner: _found(inner, probs, size, limits, counts), lambda inner: _unlimited(inner, probs)
        )
    blocks, _, width = in_blocks(nodes, probs, size, 0.0)

    def among_blocks(inner: Nodes) -> list[ir.Value]:
        largest = inner("ReduceMax", blocks, inner.integers(3), keepdims=0)
        best, _ = best_in_blocks(inner, blocks, largest, counts[0], width, ordered=False)
        return [*_checked(inner, probs, size, limits, counts, best), largest]

    def unlimited(inner: Nodes) -> list[ir.Value]:
        threshold, mass = _unlimited(inner, probs)
        return [threshold, mass, inner("Unsqueeze", threshold, inner.integers(2))]

    threshold, mass, largest = nodes.if_else(has_limit, among_blocks, unlimited)
    for draw in node.outputs[0].consumers():
        if (draw.domain, draw.op_type) == (neutral.DOMAIN, "Draw") and draw.inputs[0] is probs:
            draw.resize_inputs(4)
            draw.replace_input_with(3, largest)
    return threshold, mass


def _unlimited(nodes: Nodes, probs: ir.Value) -> list[ir.Value]:
    shape = nodes("Shape", probs, start=0, end=2)
    return [nodes("Expand", nodes.number(value), shape) for value in (0.0, 1.0)]


def _found(nodes: Nodes, probs: ir.Value, size: int, limits: Limits, counts: Sequence[int]) -> Sequence[ir.Value]:
    """Return threshold and mass [B, R], among the first of `counts` candidates or else among more of them."""
    if not counts:
        return in_order(nodes, probs, size, limits) if size <= _CANDIDATES[-1] else bisected(nodes, probs, limits)
    best, _ = nodes.several(2, "TopK", probs, nodes.integers(counts[0]))
    return _checked(nodes, probs, size, limits, counts, best)


def _checked(
    nodes: Nodes, probs: ir.Value, size: int, limits: Limits, counts: Sequence[int], best: ir.Value
) -> Sequence[ir.Value]:
    """Return threshold and mass [B, R] among the best candidates if these suffice, else among more of them."""
    threshold, mass, is_enough = apply_limits(nodes, best, counts[0], limits)
    return nodes.if_else(
        nodes.reduce_any(nodes("Not", is_enough)),
        lambda inner: _found(inner, probs, size, limits, counts[1:]),
        lambda inner: [inner("Squeeze", value, inner.integers(2)) for value in (threshold, mass)],
    )
