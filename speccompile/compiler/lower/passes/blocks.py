"""A vocabulary in blocks: a pass then examines one number per block, and a few blocks closely."""

import math

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes

SMALLEST = 8192
"""Minimum vocabulary size: below, the additional nodes cost more than they save."""

_WIDTH = 128
_ALIGNED = 16  # floats in 64 bytes: an unaligned block is summed in another order


def in_blocks(nodes: Nodes, x: ir.Value, size: int, fill: float, rank: int = 3) -> tuple[ir.Value, int, int]:
    """Reshape x float [.., size] to [.., n, width], and return it with n and the width; if no width divides the size,
    pad with `fill`.

    Every block begins at a multiple of 64 bytes, so that its sum is the same in every row.
    """
    width = _divisor(size)
    if width is None:
        width, more = _WIDTH, -size % _WIDTH
        x, size = nodes("Pad", x, nodes.integers(*[0] * (2 * rank - 1), more), nodes.number(fill, x.dtype)), size + more
    count = size // width
    return nodes("Reshape", x, nodes.integers(*[0] * (rank - 1), count, width)), count, width


def _divisor(size: int) -> int | None:
    """Return the divisor of a size that is closest to a good block size, or None."""
    widths = [width for width in range(_ALIGNED, 8 * _WIDTH + 1, _ALIGNED) if size % width == 0]
    return min(widths, key=lambda width: abs(math.log(width / _WIDTH)), default=None)
