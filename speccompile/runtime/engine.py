"""What the loop needs of an engine: buffers by name and shape, and graphs bound to them once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Run = Callable[[], None]


class Engine(Protocol):
    """Graphs over named buffers. A buffer exists once for every concrete shape: equal names and shapes share memory."""

    def array(self, buffer: str, shape: tuple[int, ...]) -> Array:
        """A host view of a buffer: what is written here the graphs read, and the other way round."""
        ...

    def bind(self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = ()) -> Run:
        """Bind a graph to its buffers at these widths and return what runs it.

        `optional` names the optional outputs that are wanted; they are found under their names with `array`.
        """
        ...

    def has(self, graph: str) -> bool:
        """Whether the bundle has this graph."""
        ...

    def address(self, buffer: str) -> int:
        """Where a state buffer lies in memory. It never moves."""
        ...


def empty(shape: tuple[int, ...], dtype: str) -> Array:
    """A zeroed array whose memory starts at a multiple of 64 bytes, as vector instructions like it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
