"""A vocabulary in blocks: what has to be looked at closely is then one number a block, and a few of the blocks."""

import math

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes

SMALLEST = 8192
"""Below, the further nodes cost more than they save."""

_WIDTH = 128
_ALIGNED = 16  # floats in 64 bytes: the sum of a block that begins elsewhere is made in another order


def in_blocks(nodes: Nodes, x: ir.Value, size: int, fill: float, rank: int = 3) -> tuple[ir.Value, int, int]:
    """x float [.., size] as [.., n, width], n and the width; where no width divides it, it is filled up with `fill`.

    Every block begins at a multiple of 64 bytes, so that its sum is the same in whatever row it stands.
    """
    width = _divisor(size)
    if width is None:
        width, more = _WIDTH, -size % _WIDTH
        x, size = nodes("Pad", x, nodes.integers(*[0] * (2 * rank - 1), more), nodes.number(fill, x.dtype)), size + more
    count = size // width
    return nodes("Reshape", x, nodes.integers(*[0] * (rank - 1), count, width)), count, width


def _divisor(size: int) -> int | None:
    """The divisor of a size that is the most like a good block, if any is."""
    widths = [width for width in range(_ALIGNED, 8 * _WIDTH + 1, _ALIGNED) if size % width == 0]
    return min(widths, key=lambda width: abs(math.log(width / _WIDTH)), default=None)
