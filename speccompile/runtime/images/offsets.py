"""Positions on three axes (M-RoPE): time, row and column.

A token has one position on all axes. The rows of a picture have the time of its beginning, and a row and a column of
the picture counted from there; the next token has one more than the largest of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def axis_offsets(blocks: NDArray[np.int64], sizes: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return what to add to each token's index for its position on every axis, int64 [3, n + 1]; the last is that of
    all tokens that follow. blocks int64 [n]: 0 for a token, else the number of a picture from 1 on, whose rows follow
    each other; sizes: rows and columns of each picture."""
    found, behind, begin = np.zeros((3, len(blocks) + 1), np.int64), 0, 0
    for number, (rows, columns) in enumerate(sizes, 1):
        places = np.flatnonzero(blocks == number)
        first, after = int(places[0]), int(places[-1]) + 1
        found[:, begin:first] = behind
        row, column = np.divmod(np.arange(rows * columns), columns)
        found[:, first:after] = first + behind + np.stack([np.zeros_like(row), row, column]) - np.arange(first, after)
        behind += max(rows, columns) - rows * columns
        begin = after
    found[:, begin:] = behind
    return found
