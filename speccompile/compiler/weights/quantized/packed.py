"""Tensors of a checkpoint that hold no floats, read a few rows or columns at a time; and what their bits stand for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.weights.source import Floats, OpenFile

Bytes = NDArray[np.uint8]
Integers = NDArray[Any]

_DTYPES = {"U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"}

FLOATS = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
"""Dtypes of safetensors that are a byte -> the float that it is."""


@dataclass(frozen=True)
class Packed:
    """A tensor as it lies in a file. dtype: safetensors' word; a float of eight bits is read as its byte."""

    file: OpenFile
    offset: int
    shape: tuple[int, ...]
    dtype: str
    content: Callable[[], str]

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(_DTYPES.get(self.dtype, "uint8"))

    def rows(self, part: slice) -> Integers:
        width = prod(self.shape[1:]) * self._dtype.itemsize
        data = self.file.read(self.offset + part.start * width, (part.stop - part.start) * width)
        return np.frombuffer(data, self._dtype).reshape(-1, *self.shape[1:])

    def columns(self, part: slice) -> Integers:
        """[rows, columns of the part] of a matrix: from every row its bytes alone."""
        rows, columns = self.shape
        if part.start == 0 and part.stop == columns:
            return self.rows(slice(0, rows))
        size, width = self._dtype.itemsize, part.stop - part.start
        found = np.empty((rows, width), self._dtype)
        for row in range(rows):
            data = self.file.read(self.offset + (row * columns + part.start) * size, width * size)
            found[row] = np.frombuffer(data, self._dtype)
        return found

    def read_all(self) -> Integers:
        return self.rows(slice(0, self.shape[0])) if self.shape else self.rows(slice(0, 1)).reshape(())

    def select(self, index: int) -> "Packed":
        inner = self.shape[1:]
        return replace(self, offset=self.offset + index * prod(inner) * self._dtype.itemsize, shape=inner)

    def identity(self) -> Any:
        return {"file": self.content(), "offset": self.offset, "shape": list(self.shape), "dtype": self.dtype}


_ALL_BYTES = np.arange(256, dtype=np.uint8)
_MEANING = {np.dtype(kind): _ALL_BYTES.view(kind).astype(np.float32) for kind in FLOATS.values()}


def widened(numbers: Integers) -> Floats:
    """float32 of integers or of floats of 8 bits; a copy, unless they are float32. Order in memory stays."""
    meaning = _MEANING.get(numbers.dtype)
    return numbers.astype(np.float32, copy=False) if meaning is None else meaning[numbers.view(np.uint8)]


E2M1: Floats = _ALL_BYTES[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32)
"""float32 [16]: what four bits stand for (OCP Microscaling Formats, section 5.3.3)."""


def nibbles(data: Bytes) -> Bytes:
    """uint8 [.., 2 n] of bytes [.., n]: 0 to 15, the low half of a byte first."""
    found = np.empty((*data.shape, 2), np.uint8)
    found[..., 0], found[..., 1] = data & 15, data >> 4
    return found.reshape(*data.shape[:-1], -1)


def pieces(words: Integers, bits: int) -> list[Bytes]:
    """What words of int32 hold, the lowest bits first: as many arrays uint8 of their shape as a word has numbers."""
    data = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8).reshape(*words.shape, 4)
    each: list[Bytes] = [data[..., place] for place in range(4)]
    return each if bits == 8 else [half for byte in each for half in (byte & np.uint8(15), byte >> np.uint8(4))]


def unpacked(words: Integers, bits: int) -> Bytes:
    """uint8 [.., n * 32 / bits] of int32 [.., n]: the lowest bits of a word first."""
    data = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)
    return data if bits == 8 else nibbles(data)
