"""Draw in two stages: the block, then the token in it."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes, static_size
from speccompile.compiler.lower.passes.blocks import in_blocks

_SMALLEST = 2048  # below, a running sum is no slower in one stage

Sums = Callable[[Nodes, ir.Value, ir.Value], ir.Value]
"""float [B, R, n, width], thresholds [B, R, 1] -> the sums [B, R, n] of weights that reach the threshold."""


def draw_blocks(model: ir.Model) -> int:
    """Before: tokens = speccompile::Draw(weights, threshold, uniforms). After, for engines without data-dependent
    shapes:

        sums = ReduceSum(Where(blocks >= threshold, blocks, 0))      of every block
        block = the first at which the running sum exceeds the uniform's share of the total
        tokens = block * width + the first index in it at which the running sum does

    In one stage for a small vocabulary. A block's sum, and so the token, does not depend on the other rows.
    """
    return rewrite_nodes(model, neutral.DOMAIN, "Draw", lambda nodes, node: _draw(nodes, node, _sums_of_all))


def draw_hot_blocks(model: ir.Model) -> int:
    """Before: tokens = speccompile::Draw(weights, threshold, uniforms). After: as in `draw_blocks`, except

        sums = If(ReduceMax(threshold) > 0, ScatterND(0, hot, sums of the hot blocks), ReduceSum(blocks))
        hot = NonZero(ReduceMax(blocks) >= threshold)

    because comparing every token takes five times as long as the sums do. A Draw may have a fourth input:
    ReduceMax(blocks), valid if a threshold is above zero.
    """

    def rewrite(nodes: Nodes, node: ir.Node) -> ir.Value:
        largest = node.inputs[3] if len(node.inputs) > 3 else None
        return _draw(nodes, node, lambda inner, blocks, limit: _sums_of_hot(inner, blocks, limit, largest))

    return rewrite_nodes(model, neutral.DOMAIN, "Draw", rewrite)


def _draw(nodes: Nodes, node: ir.Node, sums_of: Sums) -> ir.Value:
    weights, threshold, uniforms = node.inputs[:3]
    size, last = static_size(weights, 2), nodes.integers(2)
    limit, uniform = nodes("Unsqueeze", threshold, last), nodes("Unsqueeze", uniforms, last)  # [B, R, 1]
    if size < _SMALLEST:
        kept = _kept(nodes, weights, limit)
        through = nodes("CumSum", kept, nodes("Constant", value_int=2))
        share = nodes("Mul", uniform, nodes("ReduceMax", through, last, keepdims=1))
        return nodes("Squeeze", _first(nodes, through, kept, share, size), last)
    blocks, count, width = in_blocks(nodes, weights, size, 0.0)
    sums = sums_of(nodes, blocks, limit)  # [B, R, n]
    through = nodes("CumSum", sums, nodes("Constant", value_int=2))
    share = nodes("Mul", uniform, nodes("ReduceMax", through, last, keepdims=1))
    block = _first(nodes, through, sums, share, count)  # [B, R, 1]
    before = nodes("GatherElements", nodes("Sub", through, sums), block, axis=2)
    kept = _kept(nodes, nodes("GatherND", blocks, block, batch_dims=2), limit)  # [B, R, width]
    inside = nodes("CumSum", kept, nodes("Constant", value_int=2))
    place = _first(nodes, inside, kept, nodes("Sub", share, before), width)
    token = nodes("Add", nodes("Mul", block, nodes("Constant", value_int=width)), place)
    return nodes("Squeeze", token, last)


def _kept(nodes: Nodes, weights: ir.Value, limit: ir.Value) -> ir.Value:
    return nodes("Where", nodes("GreaterOrEqual", weights, limit), weights, nodes.number(0.0))


def _sums_of_all(nodes: Nodes, blocks: ir.Value, limit: ir.Value) -> ir.Value:
    kept = _kept(nodes, blocks, nodes("Unsqueeze", limit, nodes.integers(3)))
    return nodes("ReduceSum", kept, nodes.integers(3), keepdims=0)


def _sums_of_hot(nodes: Nodes, blocks: ir.Value, limit: ir.Value, known: ir.Value | None) -> ir.Value:
    """Return the sums, computed only for blocks that reach the threshold. known [B, R, n]: the largest weight of each
    block, if already computed."""

    def hot(inner: Nodes) -> list[ir.Value]:
        largest = known or inner("ReduceMax", blocks, inner.integers(3), keepdims=0)  # [B, R, n]
        places = inner("Transpose", inner("NonZero", inner("GreaterOrEqual", largest, limit)), perm=[1, 0])  # [N, 3]
        row = inner("Slice", places, inner.integers(0), inner.integers(2), inner.integers(1))
        kept = _kept(inner, inner("GatherND", blocks, places), inner("GatherND", limit, row))  # [N, width]
        sums = inner("ReduceSum", kept, inner.integers(1), keepdims=0)
        nothing = inner("Expand", inner.number(0.0), inner("Shape", largest))
        return [inner("ScatterND", nothing, places, sums)]

    def every(inner: Nodes) -> list[ir.Value]:
        return [inner("ReduceSum", blocks, inner.integers(3), keepdims=0)]

    is_limited = nodes("Greater", nodes("ReduceMax", limit, keepdims=0), nodes.number(0.0))
    return nodes.if_else(is_limited, hot, every)[0]


def _first(nodes: Nodes, through: ir.Value, parts: ir.Value, share: ir.Value, count: int) -> ir.Value:
    """Return int64 [B, R, 1]: the first of `count` indices whose part is above zero and at which the running sum
    `through` exceeds the share. If rounding leaves none, the last one whose part is above zero."""
    place = np.arange(count, dtype=np.float32)
    forward, backward = (nodes("Constant", value=ir.tensor(ranks)) for ranks in (place, 2 * count - place))
    is_part = nodes("Greater", parts, nodes.number(0.0))
    is_beyond = nodes("And", nodes("Greater", through, share), is_part)
    rank = nodes("Where", is_beyond, backward, nodes("Where", is_part, forward, nodes.number(-1.0)))
    return nodes("ArgMax", rank, axis=2, keepdims=1)
