"""Pictures of one sequence: which rows stand at which places of its prompt, and where its chunks may end."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import cached_property
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import PromptError
from speccompile.runtime.images.encoder import Encoder, Picture
from speccompile.runtime.images.family import Rows
from speccompile.runtime.images.offsets import axis_offsets

_MOMENT = 0.05
"""Seconds between two looks at what has ended meanwhile."""
_IDENTITIES = 1 << 62
"""Number of ids that stand for rows of pictures: all negative, so that none is a token's."""


class SequenceMedia:
    """Pictures in the prompt of one sequence. Each is encoded when a window first needs one of its rows."""

    def __init__(self, pictures: Sequence[Picture], ids: Sequence[int], encoder: Encoder) -> None:
        """ids: the prompt, with the placeholder for every row. Raise PromptError if their number is not that of the
        rows."""
        images = encoder.family.images
        self._encoder, self._both_ways = encoder, images.both_ways
        self._pictures: list[Picture | None] = list(pictures)  # None for those that are encoded
        self._grids = [(picture.grid.rows, picture.grid.columns) for picture in pictures]
        self._ends = np.cumsum([encoder.family.n_rows(picture.grid) for picture in pictures])
        is_row = np.array(ids, np.int64) == images.token_id
        wanted = int(self._ends[-1])
        if int(is_row.sum()) != wanted:
            raise PromptError(
                f"the prompt has {int(is_row.sum())} placeholders of pictures (token {images.token_id}), expected "
                f"{wanted}, one for each row of {len(self._pictures)} pictures",
                hint="give the ids that the target's processor makes of prompt and pictures, or a text",
            )
        self.places: NDArray[np.int64] = np.where(is_row, np.cumsum(is_row), 0)
        """For each token of the prompt 0, or the number of the row that stands in its place, from 1 on."""
        self.identity = self._identities(ids, [picture.key for picture in pictures])
        """The prompt with an id of a picture's content for each of its rows: equal for equal pictures alone."""
        self._rows: list[Rows | None] = [None] * len(self._pictures)
        self._ahead: Future[Rows] | None = None
        self.encode_seconds = 0.0
        """Time of encoding so far; pictures whose rows are kept take none."""
        if images.both_ways or images.axes:
            self._check_contiguous()

    def _identities(self, ids: Sequence[int], keys: Sequence[bytes]) -> list[int]:
        found, starts = list(ids), [0, *self._ends[:-1].tolist()]
        bases = [int.from_bytes(key[:8], "little") for key in keys]
        for place in np.flatnonzero(self.places).tolist():
            row = int(self.places[place]) - 1
            number = int(np.searchsorted(self._ends, row, "right"))
            found[place] = -1 - (bases[number] + row - starts[number]) % _IDENTITIES
        return found

    def _check_contiguous(self) -> None:
        """Raise PromptError if tokens stand among the rows of a picture."""
        for number in range(1, len(self._pictures) + 1):
            places = np.flatnonzero(self.blocks == number)
            if places[-1] - places[0] >= len(places):
                raise PromptError(
                    f"the prompt has tokens among the {len(places)} placeholders of picture {number}, expected none",
                    hint="give the ids that the target's processor makes of prompt and pictures, or a text",
                )

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """Return, for every token of the prompt, the number from 1 on of the picture whose row replaces it, else 0."""
        return np.where(self.places > 0, np.searchsorted(self._ends, self.places - 1, "right") + 1, 0)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        """Return offsets of the positions of the prompt's tokens, and of the one after it, int64 [3, n + 1]."""
        return axis_offsets(self.blocks, self._grids)

    def offsets_between(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return what to add, on each axis, to the positions of tokens from `start` to `stop`, int64 [3, n]. Those
        after the prompt have its end's."""
        last = self._offsets.shape[1] - 1
        return self._offsets[:, np.minimum(np.arange(start, stop), last)]

    @property
    def offset_behind(self) -> int:
        """Return the offset, on every axis, of the position of a token behind the prompt."""
        return int(self._offsets[0, -1])

    def chunk_stop(self, start: int, stop: int) -> int:
        """Return where a chunk of the prompt ends that begins at `start` and would end at `stop`: not among rows that
        see each other, which lie before or in it."""
        begin, end = self._cut_block(stop)
        return begin if begin > start else end

    def reusable(self, length: int) -> int:
        """Return how many of the first `length` tokens a sequence may go on from: rows that see each other are cached
        together or read again."""
        return self._cut_block(length)[0]

    def _cut_block(self, stop: int) -> tuple[int, int]:
        """Return begin and end of the rows that see each other on both sides of `stop`, which it is itself without."""
        if not self._both_ways or not 0 < stop < len(self.blocks):
            return stop, stop
        number = self.blocks[stop]
        if not number or self.blocks[stop - 1] != number:
            return stop, stop
        places = np.flatnonzero(self.blocks == number)
        return int(places[0]), int(places[-1]) + 1

    def prepare(self, start: int, *, waits: bool) -> bool:
        """Return whether the pictures of the prompt from token `start` on are encoded. If not, another thread is
        encoding one of them now. waits: wait a moment for it, so that the caller need not. Raise EngineError."""
        read = int(self.places[:start].max(initial=0))  # rows before `start`: those behind are of this picture on
        for number in range(int(np.searchsorted(self._ends, read, "right")), len(self._pictures)):
            while self._rows[number] is None:  # the thread may be at another: slots hold more than at the last look
                self._ahead = self._ahead or self._encoder.ahead.submit(self._encoded, number)
                try:
                    self._ahead.result(_MOMENT if waits else 0)
                except TimeoutError:
                    return False
                self._ahead = None
        return True

    def has_rows(self, part: range) -> bool:
        """Return whether a row of a picture stands among these tokens of the prompt."""
        return bool(self.places[part.start : part.stop].any())

    def rows_between(self, start: int, stop: int) -> tuple[NDArray[np.int64], Rows | None]:
        """Return for the prompt's tokens from `start` to `stop` their numbers in `places`, and rows float32 [n, W] for
        those that are not 0, in order; None if all are."""
        places = self.places[start:stop]
        wanted = places[places > 0] - 1
        if not wanted.size:
            return places, None
        first, last = (int(np.searchsorted(self._ends, row, "right")) for row in (wanted[0], wanted[-1]))
        rows = np.concatenate([self._encoded(number) for number in range(first, last + 1)])
        begin = int(self._ends[first - 1]) if first else 0
        return places, rows[wanted - begin]

    def _encoded(self, number: int) -> Rows:
        picture, rows = self._pictures[number], self._rows[number]  # in this order: another thread may end its encoding
        if rows is None:
            assert picture is not None, "its rows are not known"
            start = perf_counter()
            rows = self._encoder.rows(picture)
            self.encode_seconds += perf_counter() - start
            self._rows[number] = rows
            self._pictures[number] = None  # its pixels may be 200 MB
        return rows
