"""ArgMax over a vocabulary in two stages."""

import math

import onnx_ir as ir

from speccompile.lower.passes import Nodes, replace_each

_SMALLEST = 8192  # below, the further nodes cost more than they save
_BLOCK = 128


def argmax_blocks(model: ir.Model) -> int:
    """Before: y = ArgMax(x), over a last axis of n * b numbers. After:

        blocks = Reshape(x, [.., n, b])
        block = ArgMax(ReduceMax(blocks))
        y = block * b + ArgMax(GatherND(blocks, block))

    ReduceMax reads with vector instructions, which ArgMax does not. Of equal numbers the first is found, as before: it
    lies in the first of the blocks that hold one, and there it is the first.
    """
    return replace_each(model, "", "ArgMax", _in_blocks)


def _in_blocks(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    (x,), last = node.inputs, node.attributes.get_int("select_last_index", 0)
    if x is None or x.shape is None or node.attributes.get_int("axis", 0) not in (-1, len(x.shape) - 1) or last:
        return None
    rank, size = len(x.shape), x.shape[-1]
    width = _width(size) if isinstance(size, int) and size >= _SMALLEST else None
    if width is None:
        return None
    blocks = nodes("Reshape", x, nodes.integers(*[0] * (rank - 1), size // width, width))
    block = nodes("ArgMax", nodes("ReduceMax", blocks, nodes.integers(-1), keepdims=0), axis=-1, keepdims=1)
    place = nodes("ArgMax", nodes("GatherND", blocks, block, batch_dims=rank - 1), axis=-1, keepdims=1)
    found = nodes("Add", nodes("Mul", block, nodes("Constant", value_int=width)), place)
    return found if node.attributes.get_int("keepdims", 1) else nodes("Squeeze", found, nodes.integers(-1))


def _width(size: int) -> int | None:
    """The divisor of a size that is the most like a good block, if any is."""
    divisors = [width for width in range(_BLOCK // 8, 8 * _BLOCK + 1) if size % width == 0]
    return min(divisors, key=lambda width: abs(math.log(width / _BLOCK)), default=None)
