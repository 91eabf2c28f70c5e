"""The time that rounds take, the host's part and all; not the time of whoever reads their tokens."""

import time
from collections.abc import Callable

FINE = 1e-5
"""Seconds: a clock that counts in larger steps cannot tell rounds of a millisecond apart."""


def clock(*, on_device: bool) -> Callable[[], float]:
    """What tells how long a round takes. on_device: it runs on a GPU, and the processor waits for it.

    Elsewhere the thread that decodes computes: its processor time is the round's, whoever else wants the processor.
    Other threads of the session compute beside it, and it waits for them by spinning.
    """
    if on_device or time.get_clock_info("thread_time").resolution > FINE:
        return time.perf_counter
    return time.thread_time


class Stopwatch:
    """Laps without gaps: what lies between two is part of the second, unless it was a pause."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = self._paused = now()

    def start(self) -> None:
        """A lap begins now."""
        self._start = self._now()

    def lap(self) -> float:
        """Seconds of the lap that ends now; the next one begins."""
        now = self._now()
        seconds, self._start = now - self._start, now
        return seconds

    def pause(self) -> None:
        self._paused = self._now()

    def resume(self) -> None:
        """On any thread: what its clock says now goes on from what the other's said at `pause`."""
        self._start += self._now() - self._paused
