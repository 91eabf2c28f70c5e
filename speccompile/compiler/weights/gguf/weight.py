"""A lazy weight in blocks, and views that undo what llama.cpp's converter did to a weight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.checkpoints.gguf.block_types import BY_NAME, CODE_KINDS, CodeKind
from speccompile.compiler.weights.gguf.dequantize import Bytes, dequantize, parts_of
from speccompile.compiler.weights.source import LazyWeight, OpenFile, View
from speccompile.compiler.weights.stored import Codes, Floats


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
        return dequantize(self._read(part), self.kind).reshape(-1, *self.shape[1:])

    @property
    def code_kind(self) -> CodeKind | None:
        return CODE_KINDS[self.kind] if len(self.shape) == 2 else None

    def block_codes(self, part: slice) -> Codes:
        rows = part.stop - part.start
        numbers, scales, offsets = parts_of(self._read(part), self.kind)
        return Codes(
            numbers.reshape(rows, -1).T,
            scales.reshape(rows, -1).T,
            None if offsets is None else offsets.reshape(rows, -1).T,
        )

    @property
    def codes_place(self) -> dict[str, Any] | None:
        place = {"file": self.content(), "offset": self.offset, "shape": list(self.shape), "type": self.kind}
        return place if len(self.shape) == 2 else None

    def _read(self, part: slice) -> Bytes:
        """Return the bytes of some rows."""
        width = self._bytes_of(self.shape[1:])
        data = self.file.read(self.offset + part.start * width, (part.stop - part.start) * width)
        return np.frombuffer(data, np.uint8)

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


def codes_at(file: OpenFile, place: Mapping[str, Any]) -> LazyWeight:
    """Return the weight whose `codes_place` this is."""
    blocks = Blocks(file, place["offset"], tuple(place["shape"]), place["type"], lambda: str(place["file"]))
    return Halved(blocks, place["heads"]) if "heads" in place else blocks


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
        whole, order = self._order(part)
        found: Floats = self.sources[0].rows(whole)[order]
        return found

    @property
    def code_kind(self) -> CodeKind | None:
        return self.sources[0].code_kind

    def block_codes(self, part: slice) -> Codes:
        whole, order = self._order(part)
        numbers, scales, offsets = self.sources[0].block_codes(whole)
        return Codes(numbers[:, order], scales[:, order], None if offsets is None else offsets[:, order])

    @property
    def codes_place(self) -> dict[str, Any] | None:
        own = self.sources[0].codes_place
        return None if own is None else own | {"heads": self.heads}

    def _order(self, part: slice) -> tuple[slice, NDArray[np.int64]]:
        """Return the rows of all heads that the part touches, and the order of the part's rows among them."""
        size = self.shape[0] // self.heads
        first, last = part.start // size, -(-part.stop // size)
        rows = np.arange((last - first) * size).reshape(last - first, size // 2, 2).swapaxes(1, 2).reshape(-1)
        return slice(first * size, last * size), rows[part.start - first * size : part.stop - first * size]

    def identity(self) -> Any:
        return super().identity() | {"heads": self.heads}
