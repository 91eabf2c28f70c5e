"""Integer and packed tensors of a checkpoint, read a few rows or columns at a time, and the decoding of their bits."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.weights.open_file import OpenFile
from speccompile.compiler.weights.stored import Floats

Bytes = NDArray[np.uint8]
Integers = NDArray[Any]

_DTYPES = {"U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"}

FLOATS = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
"""One-byte dtypes of safetensors -> their float type."""


@dataclass(frozen=True)
class Packed:
    """A tensor in a file. dtype: safetensors' name; an 8-bit float is read as its byte."""

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
        """Return [rows, columns of the part] of a matrix, reading only their bytes of every row."""
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
    """Return float32 of integers or of 8-bit floats; a copy, unless they are float32. The memory order stays."""
    meaning = _MEANING.get(numbers.dtype)
    return numbers.astype(np.float32, copy=False) if meaning is None else meaning[numbers.view(np.uint8)]


E2M1: Floats = _ALL_BYTES[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32)
"""float32 [16]: values of four bits (OCP Microscaling Formats, section 5.3.3)."""


def nibbles(data: Bytes) -> Bytes:
    """Unpack bytes [.., n] to uint8 [.., 2 n], 0 to 15, the low half of a byte first."""
    found = np.empty((*data.shape, 2), np.uint8)
    found[..., 0], found[..., 1] = data & 15, data >> 4
    return found.reshape(*data.shape[:-1], -1)


def pieces(words: Integers, bits: int) -> list[Bytes]:
    """Unpack int32 words, the lowest bits first, into one uint8 array of their shape per number in a word."""
    data = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8).reshape(*words.shape, 4)
    each: list[Bytes] = [data[..., place] for place in range(4)]
    return each if bits == 8 else [half for byte in each for half in (byte & np.uint8(15), byte >> np.uint8(4))]


def unpacked(words: Integers, bits: int) -> Bytes:
    """Unpack int32 [.., n] to uint8 [.., n * 32 / bits]: the lowest bits of a word first."""
    data = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)
    return data if bits == 8 else nibbles(data)
