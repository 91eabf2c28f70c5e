"""ArgMax over a vocabulary in two stages."""

import math

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.blocks import SMALLEST, in_blocks


def argmax_blocks(model: ir.Model) -> int:
    """Before: y = ArgMax(x), over a last axis of n * b numbers. After:

        blocks = Reshape(x, [.., n, b])
        block = ArgMax(ReduceMax(blocks))
        y = block * b + ArgMax(GatherND(blocks, block))

    ReduceMax reads with vector instructions, which ArgMax does not. Of equal numbers the first is found, as before: it
    lies in the first of the blocks that hold one, and there it is the first. What does not part into blocks is padded
    with -inf.
    """
    return rewrite_nodes(model, "", "ArgMax", _in_blocks)


def _in_blocks(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    (x,), last = node.inputs, node.attributes.get_int("select_last_index", 0)
    if x is None or x.shape is None or node.attributes.get_int("axis", 0) not in (-1, len(x.shape) - 1) or last:
        return None
    rank, size = len(x.shape), x.shape[-1]
    if not isinstance(size, int) or size < SMALLEST:
        return None
    found = best_place(nodes, x, size, rank)
    return found if node.attributes.get_int("keepdims", 1) else nodes("Squeeze", found, nodes.integers(-1))


def best_place(nodes: Nodes, x: ir.Value, size: int, rank: int) -> ir.Value:
    """Return int64 [.., 1]: the first index of the largest of x [.., size]."""
    blocks, _, width = in_blocks(nodes, x, size, -math.inf, rank)
    block = nodes("ArgMax", nodes("ReduceMax", blocks, nodes.integers(-1), keepdims=0), axis=-1, keepdims=1)
    place = nodes("ArgMax", nodes("GatherND", blocks, block, batch_dims=rank - 1), axis=-1, keepdims=1)
    return nodes("Add", nodes("Mul", block, nodes("Constant", value_int=width)), place)
