"""Request to a service, as its client sees it."""

import queue
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from speccompile.runtime.generation import Generation


@dataclass(frozen=True)
class OutputDelta:
    """New output of one sequence of a request. text: that may be shown now, possibly ""; logprobs, top_logprobs: as
    those of `Generation`, for these tokens, None unless requested. generation: the finished generation, with its last
    delta. draft_tokens: number of draft tokens that the round of these tokens verified; accepted: number that it
    accepted, which are the first of these tokens."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[float] | None = None
    generation: Generation | None = None
    top_logprobs: list[list[tuple[int, float]]] | None = None
    draft_tokens: int = 0
    accepted: int = 0


class Request:
    """Iterator over the deltas of all its sequences, as they come. Deltas are queued until they are read: a slow reader
    blocks no other client. The iterator raises an error after the deltas that came before it.

    With asyncio: `async for` yields the deltas, `await` returns the generations; read by one task alone. A context
    manager, `with` or `async with`: a request that has not ended at its end is cancelled.
    """

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self.cancelled = False
        """True once the client has cancelled; the service notices it between two rounds."""
        self.begun = False
        """For the service: true once one of its sequences has had a batch slot."""
        self._pieces = queue.SimpleQueue[OutputDelta | BaseException]()
        self._open = sequences
        self._lock = threading.Lock()
        self._listener: Callable[[], object] | None = None

    def cancel(self) -> None:
        """End the request after the present round; its sequences end with finish_reason `cancelled`."""
        self.cancelled = True

    def on_ready(self, wake: Callable[[], object]) -> None:
        """Call `wake` whenever there is something for `poll`, from another thread: it must not block."""
        with self._lock:
            self._listener = wake
        wake()

    def poll(self) -> OutputDelta | None:
        """Return the next delta, or None while there is none. Raise what `__next__` would, StopIteration after the last
        delta."""
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
        """Wait for all sequences, and return their generations in order."""
        found = {piece.index: piece.generation for piece in self if piece.generation is not None}
        return [found[index] for index in sorted(found)]

    def __aiter__(self) -> AsyncIterator[OutputDelta]:
        return self

    async def __anext__(self) -> OutputDelta:
        import asyncio

        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        listens = False
        try:
            while (piece := self.poll()) is None:
                if not listens:  # sets `ready` at once: a delta may have come since
                    self.on_ready(lambda: loop.call_soon_threadsafe(ready.set))
                    listens = True
                await ready.wait()
                ready.clear()
        except StopIteration:
            raise StopAsyncIteration from None
        return piece

    def __await__(self) -> Generator[Any, None, list[Generation]]:
        """Wait for all sequences, and return their generations in order. A task that is cancelled meanwhile cancels the
        request."""
        return self._all().__await__()

    async def _all(self) -> list[Generation]:
        with self:
            found = {piece.index: piece.generation async for piece in self if piece.generation is not None}
        return [found[index] for index in sorted(found)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def deliver(self, piece: OutputDelta | BaseException) -> None:
        """Deliver a delta, or an exception, which ends the request: the service does so. A listener that raises
        cancels it."""
        self._pieces.put(piece)
        with self._lock:
            wake = self._listener
        if wake is not None:
            try:
                wake()
            except Exception:  # noqa: BLE001 -- for example, the client's event loop is closed
                self.cancel()

    def _taken(self, piece: OutputDelta | BaseException) -> OutputDelta:
        if isinstance(piece, BaseException):
            self._open = 0
            raise piece
        self._open -= piece.generation is not None
        return piece
