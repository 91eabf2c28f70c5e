"""Samples in a memory-mapped Arrow table: unread samples take no memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from speccompile.index.chunking import batched_by_size
from speccompile.recipe.training_files import library
from speccompile.train.data.tokens import TokenizedSample

TABLE = "texts.arrow"
_TOKENS = 1 << 20
"""Tokens of a record batch, the buffer while a table is written."""


def write_texts(texts: Iterable[TokenizedSample], folder: Path) -> None:
    """Write a table: tokens list<int32>, learnt list<bool> (loss mask), document uint64 (key), held bool (held out)."""
    arrow = library("pyarrow")
    columns = {"tokens": arrow.list_(arrow.int32()), "learnt": arrow.list_(arrow.bool_()),
               "document": arrow.uint64(), "held": arrow.bool_()}  # fmt: skip
    schema = arrow.schema(list(columns.items()))
    with arrow.OSFile(str(folder / TABLE), "wb") as file, arrow.ipc.new_file(file, schema) as writer:
        for some in batched_by_size(texts, lambda text: len(text.tokens), _TOKENS):
            writer.write_batch(arrow.record_batch(_columns(some, arrow), schema=schema))


class SampleTable:
    """Samples by number, from a table of `write_texts`.

    lengths int64 [n], documents uint64 [n], held bool [n].
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        arrow = library("pyarrow")
        with arrow.memory_map(str(folder / TABLE)) as mapped, arrow.ipc.open_file(mapped) as reader:
            self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)
        self.lengths = self._column("tokens", lambda column: np.diff(column.offsets.to_numpy()), np.int64)
        self.documents = self._column("document", _plain, np.uint64)
        self.held = self._column("held", _plain, bool)

    def __len__(self) -> int:
        return len(self.lengths)

    def tokens(self, number: int) -> np.ndarray:
        """Return the tokens of a sample, int32 [T]."""
        return self._list("tokens", number)

    def learnt(self, number: int) -> np.ndarray:
        """Return the loss mask of a sample, bool [T]."""
        return self._list("learnt", number)

    def _column(self, name: str, values: Any, dtype: type) -> np.ndarray:
        parts = [values(batch.column(name)) for batch in self._batches]
        return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)

    def _list(self, name: str, number: int) -> np.ndarray:
        index = int(np.searchsorted(self._ends, number, side="right"))
        batch = self._batches[index]
        return _plain(batch.column(name)[number - int(self._ends[index]) + batch.num_rows].values)


def _plain(column: Any) -> np.ndarray:
    """Return a column as a numpy array. Bool columns, which Arrow stores as bits, are copied."""
    return column.to_numpy(zero_copy_only=False)


def _columns(some: list[TokenizedSample], arrow: Any) -> list[Any]:
    ends = np.cumsum([0, *(len(text.tokens) for text in some)], dtype=np.int32)
    lists = [
        arrow.ListArray.from_arrays(arrow.array(ends), arrow.array(np.concatenate(parts)))
        for parts in ([text.tokens for text in some], [text.learnt for text in some])
    ]
    keys = arrow.array([text.document.key for text in some], arrow.uint64())
    return [*lists, keys, arrow.array([text.document.is_held_out for text in some], arrow.bool_())]
