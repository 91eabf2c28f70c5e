"""Nucleus among the most probable tokens, where they suffice."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from speccompile.lower import neutral
from speccompile.lower.passes import Nodes, replace_each, static_size
from speccompile.lower.passes.blocks import in_blocks
from speccompile.lower.passes.nucleus_bisected import Limits, bisected, is_limited, limits_of
from speccompile.lower.passes.topk_blocks import best_in_blocks, pays

_CANDIDATES = (64, 1024)
"""How many are looked at, first and where those do not suffice. A nucleus at top_p = 0.95 mostly has fewer than 64."""


def nucleus_candidates(model: ir.Model) -> int:
    """Before: threshold, mass = speccompile::Nucleus(probs, top_k, top_p, min_p). After:

        threshold, mass = If(any row is limited, If(the 64 best suffice, theirs, If(the 1024 best suffice, theirs,
                             by bisection over all)), (0, 1))

    They suffice where the last of them is below the threshold. Sorting the vocabulary takes a hundred times as long
    as the 64 best, bisecting it twenty times. Where they are looked for in blocks, a Draw by that threshold is given the
    largest probability of each block, as its fourth input: `draw_hot_blocks`.
    """
    return replace_each(model, neutral.DOMAIN, "Nucleus", _nucleus)


def _nucleus(nodes: Nodes, node: ir.Node) -> Sequence[ir.Value]:
    probs, *rows = node.inputs
    size = static_size(probs, 2)
    limits = limits_of(nodes, *rows)
    limited = is_limited(nodes, limits)
    counts = [count for count in _CANDIDATES if count < size]
    is_blocked = bool(counts) and pays(size, counts[0])
    blocks, _, width = in_blocks(nodes, probs, size, 0.0) if is_blocked else (probs, 0, 0)

    def among_blocks(inner: Nodes) -> list[ir.Value]:
        largest = inner("ReduceMax", blocks, inner.integers(3), keepdims=0)
        best, _ = best_in_blocks(inner, blocks, largest, counts[0], width, ordered=False)
        return [*_checked(inner, probs, size, limits, limited, counts, best), largest]

    def unlimited(inner: Nodes) -> list[ir.Value]:
        shape = inner("Shape", probs, start=0, end=2)
        filled = [inner("Expand", inner.number(value), shape) for value in (0.0, 1.0)]
        return [*filled, inner("Unsqueeze", filled[0], inner.integers(2))] if is_blocked else filled

    if not is_blocked:
        found = nodes.choose(
            nodes.any_of(limited), lambda inner: _found(inner, probs, size, limits, limited, counts), unlimited
        )
        return found
    threshold, mass, largest = nodes.choose(nodes.any_of(limited), among_blocks, unlimited)
    for draw in node.outputs[0].consumers():
        if (draw.domain, draw.op_type) == (neutral.DOMAIN, "Draw") and draw.inputs[0] is probs:
            draw.resize_inputs(4)
            draw.replace_input_with(3, largest)
    return threshold, mass


def _found(
    nodes: Nodes, probs: ir.Value, size: int, limits: Limits, limited: ir.Value, counts: Sequence[int]
) -> Sequence[ir.Value]:
    """Threshold and mass [B, R], among the first of `counts` candidates or else among more of them."""
    if not counts and size > _CANDIDATES[-1]:
        return bisected(nodes, probs, limits)
    best, _ = nodes.several(2, "TopK", probs, nodes.integers(counts[0] if counts else size))
    return _checked(nodes, probs, size, limits, limited, counts, best)


def _checked(
    nodes: Nodes, probs: ir.Value, size: int, limits: Limits, limited: ir.Value, counts: Sequence[int], best: ir.Value
) -> Sequence[ir.Value]:
    """Those of the best, where they suffice."""
    threshold, mass, is_enough = _among(nodes, best, counts[0] if counts else size, limits, limited)

    def result(inner: Nodes) -> list[ir.Value]:
        return [inner("Squeeze", value, inner.integers(2)) for value in (threshold, mass)]

    if not counts:
        return result(nodes)
    return nodes.choose(
        nodes.any_of(nodes("Not", is_enough)),
        lambda inner: _found(inner, probs, size, limits, limited, counts[1:]),
        result,
    )


def _among(
    nodes: Nodes, best: ir.Value, count: int, limits: Limits, limited: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """best [B, R, count], most probable first -> threshold, mass and whether no other token reaches it, [B, R, 1].

    The tokens that are not among them are taken to complete a sum of one.
    """
    zero, one, axis = nodes.number(0.0), nodes.number(1.0), nodes.integers(2)
    places = nodes("Constant", value=ir.tensor(np.arange(count)))
    first = nodes("Slice", best, nodes.integers(0), nodes.integers(1), axis)
    least = nodes("Slice", best, nodes.integers(count - 1), nodes.integers(count), axis)
    has_count = nodes("Greater", limits.count, nodes.integers(0))
    # The number at a place, and everything as probable: the rank alone would part equal ones.
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

    threshold = nodes("Where", limited, limit, zero)
    chosen = nodes("Where", nodes("GreaterOrEqual", best, threshold), best, zero)
    mass = nodes("Where", limited, nodes("ReduceSum", chosen, axis, keepdims=1), one)
    knows_total = nodes("Or", nodes("Not", has_count), nodes("Greater", at_count, least))
    is_enough = nodes("And", nodes("Greater", limit, least), knows_total)
    return threshold, mass, nodes("Or", is_enough, nodes("Not", limited))
