"""Ctrl-C that no library can swallow.

Python raises an interrupt at an arbitrary point. In a destructor it is printed and dropped; torch's tracer turns it
into another error, so that the model would be blamed.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], Any]


class Interrupts:
    """Context manager that records an interrupt: `check` raises it again, and so does an exit with another error.

    Signals whose handler is not Python's are left alone. Does nothing outside the main thread, which receives all
    signals.
    """

    def __init__(self) -> None:
        self._arrived: int | None = None
        handlers = {number: signal.getsignal(number) for number in _NUMBERS}
        self._handlers = {number: handler for number, handler in handlers.items() if callable(handler)}

    def __enter__(self) -> Self:
        self._install(dict.fromkeys(self._handlers, self._remember))
        return self

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was an interrupt."""
        if self._arrived is not None:
            raise KeyboardInterrupt(self._arrived)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._install(self._handlers)
        if isinstance(error, Exception):
            self.check()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._arrived = number
        self._handlers[signal.Signals(number)](number, frame)

    def _install(self, handlers: dict[signal.Signals, Handler]) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
