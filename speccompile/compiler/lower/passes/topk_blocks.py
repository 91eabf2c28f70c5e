"""TopK over a vocabulary: first the blocks that hold them."""

import math
from collections.abc import Sequence

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.blocks import SMALLEST, in_blocks
from speccompile.compiler.lower.passes.matching import numbers

_MOST = 64
_SIZE_OF_EACH = 256  # minimum ratio of the vocabulary's size to k


def topk_blocks(model: ir.Model) -> int:
    """Before: y, i = TopK(x, k), k small, over a last axis of n * b numbers. After:

        blocks = Reshape(x, [.., n, b])
        chosen = the k indices of TopK(ReduceMax(blocks), k), in ascending order
        y, j = TopK(GatherND(blocks, chosen), k)
        i = chosen[j / b] * b + j % b

    The k largest lie in the k blocks with the largest maxima. Of equal numbers the first are found, as before: blocks
    and numbers keep their order.
    """
    return rewrite_nodes(model, "", "TopK", _in_blocks)


def pays(size: int, k: int) -> bool:
    """Return whether blocks find the k largest of `size` numbers faster."""
    return k <= _MOST and size >= max(SMALLEST, _SIZE_OF_EACH * k)


def _in_blocks(nodes: Nodes, node: ir.Node) -> Sequence[ir.Value] | None:
    x, k = node.inputs[0], numbers(node.inputs[1])
    if x is None or x.shape is None or k is None or node.attributes.get_int("axis", -1) not in (-1, len(x.shape) - 1):
        return None
    size, (count,) = x.shape[-1], map(int, k)
    if not isinstance(size, int) or not pays(size, count) or not node.attributes.get_int("largest", 1):
        return None
    blocks, _, width = in_blocks(nodes, x, size, -math.inf, len(x.shape))
    largest = nodes("ReduceMax", blocks, nodes.integers(-1), keepdims=0)
    return best_in_blocks(nodes, blocks, largest, count, width, rank=len(x.shape))


def best_in_blocks(
    nodes: Nodes, blocks: ir.Value, largest: ir.Value, k: int, width: int, *, rank: int = 3, ordered: bool = True
) -> Sequence[ir.Value]:
    """Return [.., k] twice: the largest numbers in blocks [.., n, width], in descending order, and their indices.

    largest [.., n]: of each block; ordered: whether of equal numbers the first must come first.
    """
    chosen = nodes.several(2, "TopK", largest, nodes.integers(k), sorted=0)[1]
    if ordered:
        chosen = nodes.several(2, "TopK", chosen, nodes.integers(k), largest=0)[0]
    found = nodes("GatherND", blocks, nodes("Unsqueeze", chosen, nodes.integers(-1)), batch_dims=rank - 1)
    row = nodes("Reshape", found, nodes.integers(*[0] * (rank - 1), k * width))
    values, places = nodes.several(2, "TopK", row, nodes.integers(k))
    each = nodes("Constant", value_int=width)
    block = nodes("GatherElements", chosen, nodes("Div", places, each), axis=-1)
    return values, nodes("Add", nodes("Mul", block, each), nodes("Mod", places, each))
