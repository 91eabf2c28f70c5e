"""A quantized weight [N, K], N outputs of K inputs, whose numbers are multiples of scales."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.weights.quantized.packed import widened
from speccompile.compiler.weights.source import LazyWeight
from speccompile.compiler.weights.stored import Floats, Int4


class QuantizedRows(NamedTuple):
    """n outputs of a weight as stored: a number q stands for (q - zero_point) * scale.

    numbers: [K, n], integers, float8, or float32 that the caller may overwrite. scales: float32 [groups, n].
    zero_points: [groups, n], or None if all are zero.
    """

    numbers: NDArray[Any]
    scales: Floats
    zero_points: NDArray[Any] | None


@dataclass(frozen=True)
class Groups:
    """Groups of inputs that share a scale: `size` consecutive inputs, or those with one number in `order()` [K]."""

    size: int
    order: Callable[[], NDArray[Any] | None] = lambda: None


class Scaled(LazyWeight):
    """A weight that reads the packed numbers of the requested outputs."""

    def __init__(self, shape: tuple[int, int], groups: Groups, made_of: dict[str, Any], dtype: str = "float32") -> None:
        """made_of: the tensors that make up this weight's `identity()`."""
        self.shape, self.dtype, self._groups, self._made_of = shape, dtype, groups, made_of

    @abstractmethod
    def codes(self, part: slice) -> QuantizedRows:
        """Return some outputs as stored."""

    def rows(self, part: slice) -> Floats:
        numbers, scales, zero_points = self.codes(slice(*part.indices(self.shape[0])[:2]))
        found = widened(numbers)
        size, depth = self._groups.size, self.shape[1]
        if self._order is None and depth % size == 0:
            blocks = found.reshape(depth // size, size, -1)
            if zero_points is not None:
                blocks -= zero_points[:, None].astype(np.float32)
            blocks *= scales[:, None]
        else:
            groups = np.arange(depth) // size if self._order is None else self._order
            if zero_points is not None:
                found -= zero_points[groups].astype(np.float32)
            found *= scales[groups]
        return found.T

    @property
    def group_size(self) -> int | None:
        """Return the number of consecutive inputs that share a scale; None if groups are not consecutive."""
        return self._groups.size if self._order is None else None

    @cached_property
    def _order(self) -> NDArray[Any] | None:
        """Return the group of every input if groups are not consecutive; None if they are."""
        order = self._groups.order()
        in_order = order is None or bool((order == np.arange(len(order)) // self._groups.size).all())
        return None if in_order else order

    def identity(self) -> Any:
        made_of = {name: tensor.identity() for name, tensor in self._made_of.items() if tensor is not None}
        return {"kind": type(self).__name__, "shape": list(self.shape), "size": self._groups.size, "of": made_of}


class Integers(Scaled):
    """A weight in integers of 4 or 8 bits. `codes` returns uint8 numbers, and for 4 bits zero points from 0 to 15."""

    bits: int

    def int4(self, part: slice) -> Int4 | None:
        if self.bits != 4 or self._order is not None:
            return None
        numbers, scales, zero_points = self.codes(slice(*part.indices(self.shape[0])[:2]))
        assert zero_points is not None
        return Int4(numbers, scales, zero_points, self._groups.size)


class Grid(NamedTuple):
    """Scales [R, C] for blocks of outputs and inputs. read: reads its rows. height: outputs that share a row."""

    read: Callable[[slice], Floats]
    height: int

    def columns(self, part: slice) -> Floats:
        """Return float32 [C, n] for some outputs."""
        first, last = part.start // self.height, -(-part.stop // self.height)
        found = self.read(slice(first, last))
        if self.height > 1:
            found = found[np.arange(part.start, part.stop) // self.height - first]
        return found.T
