"""Exclusive use of a bundle's buffers: by one generation, or one service, at a time, until the bundle is closed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from speccompile.errors import EngineError


@dataclass(frozen=True)
class Caller:
    """Thread that calls a bundle, and the task of asyncio in which it does, if it lets another thread do the work."""

    thread: int = field(default_factory=threading.get_ident)
    task: object = None

    def waits_for_itself(self, holder: "Caller") -> bool:
        """Return whether the holder of the buffers could not go on while this caller waits for them. Two tasks of one
        thread can."""
        return self.task is holder.task if self.task and holder.task else self.thread == holder.thread


class ExclusiveUse:
    """Lock that refuses what would wait for itself."""

    def __init__(self, at_end: Callable[[], None], release: Callable[[], None]) -> None:
        """at_end: called by every holder before others may hold. release: called once, when this is closed and nobody
        holds it."""
        self._at_end, self._release = at_end, release
        self._lock = threading.Lock()
        self._owner: Caller | None = None
        self._serving = False
        self._released = False
        self.closed = False
        """True once nothing more may begin."""

    @contextmanager
    def hold(self, *, serving: bool = False, caller: Caller | None = None) -> Iterator[None]:
        """Hold the buffers for a caller, by default this thread. Other callers wait. Raise EngineError once closed, if
        this caller holds them already, and if a service does, which may hold them for long and releases them on another
        thread than it acquired them on."""
        self.check_open()
        self._check_not_serving()
        caller, holder = caller or Caller(), self._owner
        if holder is not None and caller.waits_for_itself(holder):
            raise EngineError(
                "this bundle is in the middle of another stream",
                hint="finish or close that stream first, or open the bundle a second time",
            )
        try:
            with self._lock:  # a stream may move from one thread to the next, so no RLock
                self.check_open()  # it may have been closed meanwhile
                self._owner, self._serving = None if serving else caller, serving
                try:
                    yield
                finally:
                    self._owner, self._serving = None, False
                    self._at_end()
        finally:
            if self.closed:
                self._release_if_free()

    def close(self) -> None:
        """Let nothing more begin, and release now, or when the holder has ended. Safe to call twice. Raise EngineError
        while a service holds the buffers."""
        self._check_not_serving()
        self.closed = True
        self._release_if_free()

    def check_open(self) -> None:
        """Raise EngineError once closed."""
        if self.closed:
            raise closed_error()

    def _check_not_serving(self) -> None:
        if self._serving:
            raise EngineError(
                "this bundle serves requests, and nothing else meanwhile",
                hint="submit to its service, close that first, or open the bundle a second time",
            )

    def _release_if_free(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                if not self._released:
                    self._released = True
                    self._release()
            finally:
                self._lock.release()


def closed_error() -> EngineError:
    """Return the error of a bundle that is used after it was closed. The caller raises it."""
    return EngineError("this bundle is closed", hint="open it again: load(folder)")


class Closed:
    """Stand-in for a part of a bundle that is closed: any use of it is an error."""

    def __getattr__(self, name: str) -> object:
        raise closed_error()
