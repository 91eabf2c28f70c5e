"""Generation whose text is read as it comes."""

from collections.abc import Generator, Iterator
from types import GeneratorType, TracebackType
from typing import Protocol, Self

from speccompile.runtime.exclusive_use import Caller
from speccompile.runtime.generation import Generation, SequenceState


class Running(Protocol):
    """A call under way."""

    rows: list[SequenceState]
    caller: Caller | None

    def run(self) -> Iterator[None]:
        """Run to the end, round by round."""
        ...

    def generations(self) -> list[Generation]:
        """Return the finished generations, one for each sequence."""
        ...


class TextStream:
    """Iterator over the pieces of text of one generation, and a context manager that closes it.

    The bundle is free for the next generation once the stream is exhausted, closed, or no longer referred to.
    """

    def __init__(self, batch: Running) -> None:
        self.generation: Generation | None = None
        """The whole, once the stream is exhausted; of a stream that was closed early what had come until then, with
        finish reason `cancelled`. None before."""
        self._is_over = False
        """True once it has failed or was closed: then there is no whole to come."""
        self._batch = batch
        pieces = _pieces(batch)  # it must not refer to this object, or the bundle would stay held by a cycle
        assert isinstance(pieces, GeneratorType)
        self._pieces: GeneratorType[str, None, None] = pieces

    def __repr__(self) -> str:
        if self.generation is not None:
            return f"<TextStream that is over: {self.generation!r}>"
        return f"<TextStream that {'failed' if self._is_over else 'has begun' if self.begun else 'has not begun'}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except StopIteration:
            if self.generation is None and not self._is_over:
                self.generation = self._batch.generations()[0]
            raise
        except Exception:
            self._is_over = True
            raise

    @property
    def begun(self) -> bool:
        """True from the first piece until the end: the stream holds the bundle."""
        return self._pieces.gi_suspended or self._pieces.gi_running

    def hold_for(self, caller: Caller) -> None:
        """Let the first piece hold the bundle for this caller, not for the thread that asks for the piece."""
        self._batch.caller = caller

    def close(self) -> None:
        """Stop early, and free the bundle. Do nothing for a stream that has ended, or that another thread is reading at
        this moment."""
        if self._pieces.gi_running:
            return
        self._pieces.close()
        row, is_over, self._is_over = self._batch.rows[0], self._is_over, True
        if self.generation is None and not is_over and row.path_lengths:
            if row.is_active:
                row.finish("cancelled")
            self.generation = self._batch.generations()[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pieces(batch: Running) -> Generator[str, None, None]:
    shown, row = 0, batch.rows[0]
    row.decodes_every_round = True
    for _ in batch.run():
        for piece in row.pieces[shown:]:
            if piece:
                yield piece
        shown = len(row.pieces)
