"""Numbers that were read from a file, as float32 and in the order in which they are wanted."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.weights.stored import Floats

_COLUMNS_COPIED = 16  # of a transposed matrix at a time: a line of a processor's cache


def row_major(matrix: Floats) -> Floats:
    """Return a matrix [K, N] with its rows side by side. A transposed one is copied a few columns at a time: numpy goes
    through it row by row, which takes four times as long."""
    if matrix.flags.c_contiguous:
        return matrix
    found = np.empty(matrix.shape, matrix.dtype)
    for start in range(0, matrix.shape[1], _COLUMNS_COPIED):
        found[:, start : start + _COLUMNS_COPIED] = matrix[:, start : start + _COLUMNS_COPIED]
    return found


def widened(numbers: NDArray[Any], dtype: str) -> Floats:
    """Return numbers in one of DTYPES as float32; float32 is returned unchanged."""
    if dtype != "bfloat16" or not numbers.ndim:
        return numbers.astype(np.float32, copy=False)
    # Upper 16 bits of float32: seven times as fast as the conversion of ml_dtypes.
    return np.left_shift(numbers.view(np.uint16), 16, dtype=np.uint32).view(np.float32)
