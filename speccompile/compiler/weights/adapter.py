"""Weights of a model with an adapter merged into them, in float32, a few rows at a time."""

from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.compiler.checkpoints.weights import FLOAT_DTYPES, StoredTensor
from speccompile.compiler.weights.open_file import opened
from speccompile.compiler.weights.source import FileBacked, InMemory, LazyWeight, View
from speccompile.compiler.weights.stored import Floats
from speccompile.errors import CheckpointError
from speccompile.machine.formats.peft import ADAPTER_WEIGHTS, Adapter, LowRank


class AdapterTensors:
    """Tensors of an adapter's file. Raise CheckpointError for numbers that are not finite."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ADAPTER_WEIGHTS
        self._file = opened(self._path)
        self._content = cache(partial(cached_file_hash, self._path))

    def lazy(self, tensor: StoredTensor) -> FileBacked:
        return FileBacked(self._file, tensor.offset, tensor.shape, FLOAT_DTYPES[tensor.dtype], self._content)

    def numbers(self, tensor: StoredTensor) -> Floats:
        """Return all numbers of a tensor, float32."""
        found = self.lazy(tensor).read_all()
        if not np.isfinite(found).all():
            raise CheckpointError(
                f"{self._path}: received numbers that are infinite or no numbers in a tensor of {list(tensor.shape)}, "
                "expected finite ones",
                hint="the training of the adapter has failed: take an earlier checkpoint of it",
            )
        return found


def check_numbers(adapter: Adapter, folder: Path) -> None:
    """Read every tensor of an adapter. Raise CheckpointError for numbers that are not finite."""
    tensors = AdapterTensors(folder)
    for each in adapter.low_rank:
        for tensor in filter(None, (each.a, each.b, each.magnitude, each.bias)):
            tensors.numbers(tensor)
    for tensor in (*adapter.replaced.values(), *(rows for _, rows in adapter.rows.values())):
        tensors.numbers(tensor)


class Adapted(View):
    """W + scale B A for a weight W [N, K]; with DoRA magnitude * (W + scale B A) / the norms of its rows.

    is_transposed: the weight is stored as [K, N], as GPT-2 does. The product is added rank by rank, so that a number
    does not depend on which rows are read together.
    """

    def __init__(self, base: LazyWeight, change: LowRank, tensors: AdapterTensors, *, is_transposed: bool) -> None:
        super().__init__([base], base.shape)
        self.dtype = "float32"
        self._change, self._tensors, self._is_transposed = change, tensors, is_transposed

    @cached_property
    def _factors(self) -> tuple[Floats, Floats]:
        """Return factors [rows, r], scaled, and [r, columns] of the addend to the weight as it is stored."""
        a, b = self._tensors.numbers(self._change.a), self._tensors.numbers(self._change.b)
        left, right = (a.T, b.T) if self._is_transposed or self._change.is_embedding else (b, a)
        return left * np.float32(self._change.scale), right

    def _sums(self, part: slice) -> Floats:
        left, right = self._factors
        found = np.array(self.sources[0].rows(part), np.float32)
        for rank in range(len(right)):
            found += left[part, rank, None] * right[rank]
        return found

    @cached_property
    def _ratios(self) -> Floats | None:
        """Return the magnitude over norm, for every output; None without DoRA."""
        if self._change.magnitude is None:
            return None
        squares = np.concatenate([self._squares(part) for part in self.parts()])
        norms = np.sqrt(squares.sum(0) if self._is_transposed else squares.sum(1))
        return (self._tensors.numbers(self._change.magnitude) / norms).astype(np.float32)

    def _squares(self, part: slice) -> Any:
        """Return float64 squares: [rows, 1], or [1, outputs] where the weight is transposed."""
        found = np.square(self._sums(part), dtype=np.float64)
        return found.sum(0, keepdims=True) if self._is_transposed else found.sum(1, keepdims=True)

    def rows(self, part: slice) -> Floats:
        found, ratios = self._sums(part), self._ratios
        if ratios is None:
            return found
        scaled: Floats = found * (ratios if self._is_transposed else ratios[part, None])
        return scaled

    def identity(self) -> Any:
        tensors = [
            self._tensors.lazy(each).identity()
            for each in (self._change.a, self._change.b, self._change.magnitude)
            if each is not None
        ]
        return super().identity() | {"adapter": tensors, "scale": self._change.scale}


class WithRows(View):
    """A weight [V, H] with some of its rows replaced. tokens: their places; rows: [n, H]."""

    def __init__(self, base: LazyWeight, tokens: tuple[int, ...], rows: LazyWeight) -> None:
        super().__init__([base, rows], base.shape)
        self.dtype = "float32"
        self._tokens = tokens

    def rows(self, part: slice) -> Floats:
        found = np.array(self.sources[0].rows(part), np.float32)
        for place, token in enumerate(self._tokens):
            if part.start <= token < part.stop:
                found[token - part.start] = self.sources[1].rows(slice(place, place + 1))[0]
        return found

    def identity(self) -> Any:
        return super().identity() | {"tokens": list(self._tokens)}


def biased(bias: LazyWeight, change: LowRank, tensors: AdapterTensors) -> LazyWeight:
    """Return the bias [N] of a layer with that of the adapter added."""
    assert change.bias is not None
    return InMemory(bias.read_all() + np.float32(change.scale) * tensors.numbers(change.bias))
