"""A lazy weight in blocks, and views that undo what llama.cpp's converter did to a weight."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.checkpoints.gguf.block_types import BY_NAME, CODE_KINDS, CodeKind
from speccompile.compiler.weights.gguf.dequantize import Bytes, dequantize, parts_of
from speccompile.compiler.weights.open_file import OpenFile
from speccompile.compiler.weights.source import (
    Concatenated,
    LazyWeight,
    Stacked,
    View,
    codes_as,
    common_kind,
    locations_of,
)
from speccompile.compiler.weights.stored import Codes, Floats


class ValueTiles(NamedTuple):
    """Order of heads of values, as the converter of linear attention tiles them: the first head of each head of keys,
    then the second of each. keys: heads of keys; values: heads of values for each of these; size: rows of a head;
    before: rows before the first head, which stay."""

    keys: int
    values: int
    size: int
    before: int = 0

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where rows lie in the file."""
        head, inner = np.divmod(rows - self.before, self.size)
        key, own = np.divmod(head, self.values)
        found: NDArray[np.int64] = self.before + (own * self.keys + key) * self.size + inner
        return np.where(rows < self.before, rows, found)


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


def codes_in(open_file: Callable[[str], OpenFile], place: Mapping[str, Any]) -> LazyWeight:
    """Return the weight whose `codes_place` this is. open_file: returns the file with a digest."""
    match place:
        case {"stack": list(places)}:
            return Stacked([codes_in(open_file, each) for each in places])
        case {"joined": list(places)}:
            return Concatenated([codes_in(open_file, each) for each in places])
        case {"turns": [even, odd]}:
            return Interleaved(codes_in(open_file, even), codes_in(open_file, odd))
        case {"transposed": inner, "axes": list(axes)}:
            return codes_in(open_file, inner).transpose(axes)
    return codes_at(open_file(place["file"]), place)


def codes_at(file: OpenFile, place: Mapping[str, Any]) -> LazyWeight:
    """Return the weight whose `codes_place` this is."""
    blocks = Blocks(file, place["offset"], tuple(place["shape"]), place["type"], lambda: str(place["file"]))
    if "columns" in place:
        return GroupedColumns(blocks, ValueTiles(*place["columns"]))
    if "tiles" in place:
        return Grouped(blocks, ValueTiles(*place["tiles"]))
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

    @property
    def code_kind(self) -> CodeKind | None:
        return common_kind(self.sources)

    def block_codes(self, part: slice) -> Codes:
        own, first = slice(part.start // 2, -(-part.stop // 2)), part.start % 2
        kind = self.code_kind
        even, odd = (codes_as(source, own, kind) for source in self.sources)

        def in_turn(*pair: NDArray[Any]) -> NDArray[Any]:
            return np.stack(pair, axis=2).reshape(len(pair[0]), -1)[:, first : first + part.stop - part.start]

        moved = None if even.offsets is None or odd.offsets is None else in_turn(even.offsets, odd.offsets)
        return Codes(in_turn(even.numbers, odd.numbers), in_turn(even.scales, odd.scales), moved)

    @property
    def codes_place(self) -> dict[str, Any] | None:
        return locations_of("turns", self.sources)


class Reordered(View):
    """A weight whose rows lie in another order in the file, codes included."""

    def __init__(self, source: LazyWeight) -> None:
        super().__init__([source], source.shape)

    @property
    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return parameters of the order, as JSON."""

    @abstractmethod
    def _order(self, part: slice) -> tuple[slice, NDArray[np.int64]]:
        """Return rows of the source that hold all of the part's, and the order of the part's among them."""

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
        return None if own is None else own | self.order

    def identity(self) -> Any:
        return super().identity() | self.order


class Halved(Reordered):
    """A weight [heads * d, ..] whose rows lie in pairs within each head, returned with the first halves of the pairs
    first: llama.cpp rotates neighbouring rows, transformers row i with row i + d / 2. heads: of the weight."""

    def __init__(self, source: LazyWeight, heads: int) -> None:
        super().__init__(source)
        self.heads = heads

    @property
    def order(self) -> dict[str, Any]:
        return {"heads": self.heads}

    def _order(self, part: slice) -> tuple[slice, NDArray[np.int64]]:
        size = self.shape[0] // self.heads
        first, last = part.start // size, -(-part.stop // size)
        rows = np.arange((last - first) * size).reshape(last - first, size // 2, 2).swapaxes(1, 2).reshape(-1)
        return slice(first * size, last * size), rows[part.start - first * size : part.stop - first * size]


class Grouped(Reordered):
    """A weight whose heads of values lie in turn for each head of keys, returned with those of one head of keys side by
    side. tiles: see `ValueTiles`."""

    def __init__(self, source: LazyWeight, tiles: ValueTiles) -> None:
        super().__init__(source)
        self.tiles = tiles

    @property
    def order(self) -> dict[str, Any]:
        return {"tiles": list(self.tiles)}

    def _order(self, part: slice) -> tuple[slice, NDArray[np.int64]]:
        if part.start >= part.stop:
            return part, np.zeros(0, np.int64)
        rows = self.tiles.places(np.arange(part.start, part.stop))
        first = int(rows.min())
        return slice(first, int(rows.max()) + 1), rows - first


class GroupedColumns(View):
    """A weight with columns for heads of values, in the order of `Grouped`."""

    def __init__(self, source: LazyWeight, tiles: ValueTiles) -> None:
        super().__init__([source], source.shape)
        self.tiles = tiles

    def rows(self, part: slice) -> Floats:
        found: Floats = self.sources[0].rows(part)[:, self.tiles.places(np.arange(self.shape[1]))]
        return found

    @property
    def code_kind(self) -> CodeKind | None:
        """Return the source's, if no block reaches beyond a head."""
        kind = self.sources[0].code_kind
        return None if kind is None or self.tiles.size % kind.block_size else kind

    def block_codes(self, part: slice) -> Codes:
        kind = self.code_kind
        assert kind is not None, "others have no codes"
        numbers, scales, offsets = self.sources[0].block_codes(part)
        order = self.tiles.places(np.arange(self.shape[1]))
        blocks = order[:: kind.block_size] // kind.block_size
        return Codes(numbers[order], scales[blocks], None if offsets is None else offsets[blocks])

    @property
    def codes_place(self) -> dict[str, Any] | None:
        own = self.sources[0].codes_place
        return None if own is None or self.code_kind is None else own | {"columns": list(self.tiles)}

    def identity(self) -> Any:
        return super().identity() | {"columns": list(self.tiles)}
