"""A lazy weight in blocks, and views that undo what llama.cpp's converter did to a weight."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from speccompile.compiler.checkpoints.gguf.block_types import BY_NAME
from speccompile.compiler.weights.gguf.dequantize import dequantize
from speccompile.compiler.weights.source import Floats, LazyWeight, OpenFile, View


@dataclass(frozen=True)
class Blocks(LazyWeight):
    """A weight stored in blocks, each a part of one row. kind: its type. offset: of its first byte. content: returns a
    digest of the whole file."""

    file: OpenFile
    offset: int
    shape: tuple[int, ...]
    kind: str
    content: Callable[[], str] = field(compare=False)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "float32"

    def rows(self, part: slice) -> Floats:
        width = self._bytes_of(self.shape[1:])
        data = self.file.read(self.offset + part.start * width, (part.stop - part.start) * width)
        return dequantize(np.frombuffer(data, np.uint8), self.kind).reshape(-1, *self.shape[1:])

    def identity(self) -> Any:
        return {"file": self.content(), "offset": self.offset, "shape": list(self.shape), "type": self.kind}

    def select(self, index: int) -> LazyWeight:
        return Blocks(
            self.file, self.offset + index * self._bytes_of(self.shape[1:]), self.shape[1:], self.kind, self.content
        )

    def narrow(self, part: slice) -> LazyWeight:
        offset = self.offset + part.start * self._bytes_of(self.shape[1:])
        return Blocks(self.file, offset, (part.stop - part.start, *self.shape[1:]), self.kind, self.content)

    def _bytes_of(self, shape: tuple[int, ...]) -> int:
        kind = BY_NAME[self.kind]
        return prod(shape) // kind.numbers * kind.size


class Interleaved(View):
    """The rows of two weights in turn: [2 N, ..], as GPT-OSS has gate and up."""

    def __init__(self, even: LazyWeight, odd: LazyWeight) -> None:
        super().__init__([even, odd], (2 * even.shape[0], *even.shape[1:]))

    def rows(self, part: slice) -> Floats:
        own = slice(part.start // 2, -(-part.stop // 2))
        both = np.stack([source.rows(own) for source in self.sources], axis=1).reshape(-1, *self.shape[1:])
        found: Floats = both[part.start - 2 * own.start : part.stop - 2 * own.start]
        return found


class Halved(View):
    """A weight [heads * d, ..] whose rows lie in pairs within each head, returned with the first halves of the pairs
    first: llama.cpp rotates neighbouring rows, transformers row i with row i + d / 2. heads: of the weight."""

    def __init__(self, source: LazyWeight, heads: int) -> None:
        super().__init__([source], source.shape)
        self.heads = heads

    def rows(self, part: slice) -> Floats:
        size = self.shape[0] // self.heads
        first, last = part.start // size, -(-part.stop // size)
        whole = self.sources[0].rows(slice(first * size, last * size))
        turned = whole.reshape(last - first, size // 2, 2, -1).swapaxes(1, 2).reshape(whole.shape)
        return turned[part.start - first * size : part.stop - first * size]

    def identity(self) -> Any:
        return super().identity() | {"heads": self.heads}
