"""Generation whose text is read as it comes."""

from collections.abc import Iterator
from typing import Protocol

from speccompile.runtime.generation import Generation, SequenceState


class Running(Protocol):
    """A call under way."""

    rows: list[SequenceState]

    def run(self) -> Iterator[None]:
        """Run to the end, round by round."""
        ...

    def generations(self) -> list[Generation]:
        """Return the finished generations, one for each sequence."""
        ...


class TextStream:
    """An iterator over pieces of text. `generation` holds the whole once it is exhausted, None before."""

    def __init__(self, batch: Running) -> None:
        self.generation: Generation | None = None
        self._pieces = self._run(batch)

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop early and free the bundle for the next generation."""
        self._pieces.close()  # type: ignore[attr-defined]

    def _run(self, batch: Running) -> Iterator[str]:
        shown, row = 0, batch.rows[0]
        row.decodes_every_round = True
        for _ in batch.run():
            for piece in row.pieces[shown:]:
                if piece:
                    yield piece
            shown = len(row.pieces)
        self.generation = batch.generations()[0]
