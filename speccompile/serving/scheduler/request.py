"""A request to a service, as the one who asked sees it."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speccompile.runtime.generation import Generation


@dataclass(frozen=True)
class OutputDelta:
    """What one sequence of a request has got. text: that may be shown now, possibly ""; logprobs: as those of
    `Generation`, of these tokens, None where they were not asked for; top_logprobs: the same. generation: the whole,
    with its last piece."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[float] | None = None
    generation: Generation | None = None
    top_logprobs: list[list[tuple[int, float]]] | None = None


class Request:
    """An iterator over the pieces of all its sequences, as they come. Pieces wait for whoever reads them: a slow reader
    holds up nobody. What goes wrong is raised by the iterator, behind the pieces that came before."""

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self.cancelled = False
        """Whether somebody has lost interest: the service sees it between two rounds."""
        self.begun = False
        """For the service: whether a sequence of it has had a row."""
        self._pieces = queue.SimpleQueue[OutputDelta | BaseException]()
        self._open = sequences
        self._lock = threading.Lock()
        self._listener: Callable[[], None] | None = None

    def cancel(self) -> None:
        """End it with the round that is under way; its sequences end with finish_reason `cancelled`."""
        self.cancelled = True

    def on_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever there is something for `poll`, from another thread: it must not block."""
        with self._lock:
            self._listener = wake
        wake()

    def poll(self) -> OutputDelta | None:
        """The next piece, None while there is none. Raises what `__next__` would, StopIteration behind the last."""
        if not self._open:
            raise StopIteration
        try:
            return self._taken(self._pieces.get_nowait())
        except queue.Empty:
            return None

    def __iter__(self) -> Iterator[OutputDelta]:
        return self

    def __next__(self) -> OutputDelta:
        if not self._open:
            raise StopIteration
        return self._taken(self._pieces.get())

    def generations(self) -> list[Generation]:
        """Wait for all sequences; the whole of each, in their order."""
        found = {piece.index: piece.generation for piece in self if piece.generation is not None}
        return [found[index] for index in sorted(found)]

    def deliver(self, piece: OutputDelta | BaseException) -> None:
        """For the service: what comes next. An exception ends the request, and so does a listener that raises one."""
        self._pieces.put(piece)
        with self._lock:
            wake = self._listener
        if wake is not None:
            try:
                wake()
            except Exception:  # noqa: BLE001 -- as of an event loop that is closed: nobody listens any more
                self.cancel()

    def _taken(self, piece: OutputDelta | BaseException) -> OutputDelta:
        if isinstance(piece, BaseException):
            self._open = 0
            raise piece
        self._open -= piece.generation is not None
        return piece
