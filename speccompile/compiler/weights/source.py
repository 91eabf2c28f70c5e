"""Lazily read weights: a shape and a reader of rows. Transposed, sliced and concatenated weights are lazy, too."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.checkpoints.gguf.block_types import CodeKind, joined_kind
from speccompile.compiler.weights.floats import row_major, widened
from speccompile.compiler.weights.open_file import OpenFile
from speccompile.compiler.weights.stored import Codes, Floats, Int4, in_kind, joined_codes, joined_int4

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
"""Dtypes of stored weights, by torch's names."""

AT_A_TIME = 1 << 20
"""Elements per read of a pass over a whole weight: 4 MB, which stay in a processor's cache."""


@dataclass(frozen=True)
class FileSpan:
    """Contiguous bytes of a weight in a file. offset and length in bytes."""

    path: Path
    offset: int
    length: int


class LazyWeight(ABC):
    """A weight of shape [N, ..]. dtype: the smallest of DTYPES that holds all of its values."""

    shape: tuple[int, ...]
    dtype: str

    @abstractmethod
    def rows(self, part: slice) -> Floats:
        """Return float32 [rows of the part, ..], a copy or read-only. part: start and stop, no step."""

    @abstractmethod
    def identity(self) -> Any:
        """Return the identity of its values, as JSON: equal identities mean equal values, in any file."""

    @property
    def place(self) -> FileSpan | None:
        """Return its location in a file in `dtype`; None for one that is derived from other weights."""
        return None

    @property
    def size(self) -> int:
        return prod(self.shape)

    def read_all(self) -> Floats:
        """Return all of it as float32, in the weight's shape."""
        return self.rows(slice(0, self.shape[0])) if self.shape else self.rows(slice(0, 1))

    def columns(self, part: slice) -> Floats:
        """Return float32 [K, columns of the part] of a weight [K, N]."""
        return self.read_all()[:, part]

    def int4(self, part: slice) -> Int4 | None:
        """Return rows of a weight [N, K] as columns [K, n] in 4 bits; None if they are not stored in 4 bits."""
        return None

    def int4_columns(self, part: slice) -> Int4 | None:
        """Return columns of a weight [K, N] in 4 bits; None if they are not stored in 4 bits."""
        return None

    @property
    def code_kind(self) -> CodeKind | None:
        """Return how a weight [N, K] of one type stores its rows in codes; None for other weights."""
        return None

    def block_codes(self, part: slice) -> Codes:
        """Return rows of a weight [N, K] with a `code_kind` as columns [K, n]."""
        raise TypeError(f"{type(self).__name__} stores no codes")

    @property
    def codes_place(self) -> dict[str, Any] | None:
        """Return where its codes lie, as JSON, with the digest of each `file`; None for weights that have none."""
        return None

    def parts(self) -> Iterator[slice]:
        """Yield all rows, a few at a time."""
        step = max(1, AT_A_TIME * self.shape[0] // max(1, self.size))
        return (slice(start, min(start + step, self.shape[0])) for start in range(0, self.shape[0], step))

    def select(self, index: int) -> "LazyWeight":
        """Return one item of its first axis: [..]."""
        return Indexed(self, index)

    def transpose(self, axes: Sequence[int]) -> "LazyWeight":
        """Return it with its axes permuted."""
        return self if tuple(axes) == tuple(range(len(self.shape))) else Transposed(self, tuple(axes))

    def narrow(self, part: slice) -> "LazyWeight":
        """Return some of its rows."""
        whole = part.start == 0 and part.stop == self.shape[0]
        return self if whole else Sliced(self, part.start, part.stop)


STACK, JOINED, TRANSPOSED = "stack", "joined", "transposed"
"""Keys of the `codes_place` of weights that are stacked, whose rows are concatenated, and of one with other axes."""


def common_kind(sources: Sequence[LazyWeight]) -> CodeKind | None:
    """Return how all of some weights can store their rows in codes; None unless all have codes."""
    kinds = [source.code_kind for source in sources]
    known = [kind for kind in kinds if kind is not None]
    return joined_kind(known) if len(known) == len(kinds) else None


def codes_as(source: LazyWeight, part: slice, kind: CodeKind | None) -> Codes:
    """Return some rows of a weight in codes of a kind that holds its own."""
    own = source.code_kind
    assert own is not None, "others have no codes"
    assert kind is not None, "others have no codes"
    return in_kind(source.block_codes(part), own, kind)


def locations_of(key: str, sources: Sequence[LazyWeight]) -> dict[str, Any] | None:
    """Return where the codes of several weights lie, as `codes_place`; None if some have none."""
    places = [source.codes_place for source in sources]
    return None if None in places else {key: places}


@dataclass(frozen=True)
class FileBacked(LazyWeight):
    """A weight stored in a file. content: returns a digest of the whole file, called when weights are compared."""

    file: OpenFile
    offset: int
    shape: tuple[int, ...]
    dtype: str
    content: Callable[[], str] = field(compare=False)

    def rows(self, part: slice) -> Floats:
        return widened(self.raw(part), self.dtype)

    def raw(self, part: slice) -> NDArray[Any]:
        """Return the rows in the dtype of the file; bfloat16 as in ml_dtypes."""
        dtype, inner = DTYPES[self.dtype], self.shape[1:]
        width = prod(inner) * dtype.itemsize
        data = self.file.read(self.offset + part.start * width, (part.stop - part.start) * width)
        return np.frombuffer(data, dtype).reshape(inner if not self.shape else (-1, *inner))

    def identity(self) -> Any:
        return {"file": self.content(), "offset": self.offset, "shape": list(self.shape), "dtype": self.dtype}

    @property
    def place(self) -> FileSpan:
        return FileSpan(self.file.path, self.offset, self.size * DTYPES[self.dtype].itemsize)

    def select(self, index: int) -> LazyWeight:
        inner = self.shape[1:]
        offset = self.offset + index * prod(inner) * DTYPES[self.dtype].itemsize
        return FileBacked(self.file, offset, inner, self.dtype, self.content)

    def narrow(self, part: slice) -> LazyWeight:
        offset = self.offset + part.start * prod(self.shape[1:]) * DTYPES[self.dtype].itemsize
        shape = (part.stop - part.start, *self.shape[1:])
        return FileBacked(self.file, offset, shape, self.dtype, self.content)


@dataclass(frozen=True)
class InMemory(LazyWeight):
    """A small computed weight, in memory."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.array.shape

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "float32"

    def rows(self, part: slice) -> Floats:
        return (self.array[part] if self.array.ndim else self.array).astype(np.float32, copy=False)

    def identity(self) -> Any:
        from blake3 import blake3

        return {"numbers": blake3(self.array.tobytes()).hexdigest(), "shape": list(self.shape)}


class View(LazyWeight):
    """A weight derived from other weights, in their dtype."""

    def __init__(self, sources: Sequence[LazyWeight], shape: Sequence[int]) -> None:
        self.sources, self.shape = tuple(sources), tuple(shape)
        kinds = {source.dtype for source in sources}
        self.dtype = kinds.pop() if len(kinds) == 1 else "float32"

    def identity(self) -> Any:
        return {"kind": type(self).__name__, "of": [source.identity() for source in self.sources]}


class Indexed(View):
    """One item of the first axis of another weight."""

    def __init__(self, source: LazyWeight, index: int) -> None:
        super().__init__([source], source.shape[1:])
        self.index = index

    @cached_property
    def _own(self) -> LazyWeight:
        return self.sources[0].narrow(slice(self.index, self.index + 1))

    def rows(self, part: slice) -> Floats:
        found: Floats = self._own.read_all()[0]
        return found[part] if self.shape else found

    def identity(self) -> Any:
        return super().identity() | {"index": self.index}


class Transposed(View):
    """Another weight with its axes permuted."""

    def __init__(self, source: LazyWeight, axes: tuple[int, ...]) -> None:
        super().__init__([source], [source.shape[axis] for axis in axes])
        self.axes = axes

    def rows(self, part: slice) -> Floats:
        return self.sources[0].read_all().transpose(self.axes)[part]

    def columns(self, part: slice) -> Floats:
        """Read columns as rows of the source: only these are read, whereas rows of a transposed weight need all."""
        return row_major(self.sources[0].rows(slice(*part.indices(self.shape[1])[:2])).T)

    def int4_columns(self, part: slice) -> Int4 | None:
        return self.sources[0].int4(slice(*part.indices(self.shape[1])[:2])) if self.axes == (1, 0) else None

    def select(self, index: int) -> LazyWeight:
        if self.axes[0] != 0:
            return super().select(index)
        return self.sources[0].select(index).transpose([axis - 1 for axis in self.axes[1:]])

    def transpose(self, axes: Sequence[int]) -> LazyWeight:
        return self.sources[0].transpose([self.axes[axis] for axis in axes])

    @property
    def codes_place(self) -> dict[str, Any] | None:
        place = self.sources[0].codes_place
        return None if place is None else {TRANSPOSED: place, "axes": list(self.axes)}

    def identity(self) -> Any:
        return super().identity() | {"axes": list(self.axes)}


class Sliced(View):
    """Some rows of another weight."""

    def __init__(self, source: LazyWeight, start: int, stop: int) -> None:
        super().__init__([source], [stop - start, *source.shape[1:]])
        self.start = start

    def rows(self, part: slice) -> Floats:
        return self.sources[0].rows(slice(self.start + part.start, self.start + part.stop))

    def int4(self, part: slice) -> Int4 | None:
        return self.sources[0].int4(slice(self.start + part.start, self.start + part.stop))

    @property
    def code_kind(self) -> CodeKind | None:
        return self.sources[0].code_kind

    def block_codes(self, part: slice) -> Codes:
        return self.sources[0].block_codes(slice(self.start + part.start, self.start + part.stop))

    def identity(self) -> Any:
        return super().identity() | {"rows": [self.start, self.start + self.shape[0]]}


class Stacked(View):
    """Several weights of one shape on a new first axis, as transformers stores experts."""

    def __init__(self, sources: Sequence[LazyWeight]) -> None:
        super().__init__(sources, [len(sources), *sources[0].shape])

    def rows(self, part: slice) -> Floats:
        return np.stack([source.read_all() for source in self.sources[part]])

    def select(self, index: int) -> LazyWeight:
        return self.sources[index]

    @property
    def codes_place(self) -> dict[str, Any] | None:
        return locations_of(STACK, self.sources)


class Concatenated(View):
    """The rows of several weights, concatenated."""

    def __init__(self, sources: Sequence[LazyWeight]) -> None:
        super().__init__(sources, [sum(source.shape[0] for source in sources), *sources[0].shape[1:]])

    def rows(self, part: slice) -> Floats:
        found = [source.rows(own) for source, own in self._reached(part)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def int4(self, part: slice) -> Int4 | None:
        found = [source.int4(own) for source, own in self._reached(part)]
        return joined_int4(found)

    @property
    def code_kind(self) -> CodeKind | None:
        return common_kind(self.sources)

    def block_codes(self, part: slice) -> Codes:
        kind = self.code_kind
        return joined_codes([codes_as(source, own, kind) for source, own in self._reached(part)])

    @property
    def codes_place(self) -> dict[str, Any] | None:
        return locations_of(JOINED, self.sources)

    def _reached(self, part: slice) -> Iterator[tuple[LazyWeight, slice]]:
        """Yield (source, its rows) for the rows of the part."""
        for source, end in zip(self.sources, accumulate(each.shape[0] for each in self.sources), strict=True):
            start = end - source.shape[0]
            first, last = max(part.start, start), min(part.stop, end)
            if first < last:
                yield source, slice(first - start, last - start)
