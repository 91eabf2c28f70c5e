"""Time of rounds, with the host's part, but without the time of the caller that reads their tokens."""

import time
from collections.abc import Callable

FINE = 1e-5
"""Seconds: a clock that counts in larger steps cannot tell rounds of a millisecond apart."""


def clock(*, on_device: bool) -> Callable[[], float]:
    """Return the clock that times rounds. on_device: they run on a GPU, and the processor waits for it.

    Otherwise the decoding thread computes: its processor time is the round's, even if other processes use the
    processor. Other threads of the session compute at the same time, while it waits for them by spinning.
    """
    if on_device or time.get_clock_info("thread_time").resolution > FINE:
        return time.perf_counter
    return time.thread_time


class Stopwatch:
    """Laps without gaps: time between two laps belongs to the second, unless it was a pause."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = self._paused = now()

    def start(self) -> None:
        """Start a lap."""
        self._start = self._now()

    def lap(self) -> float:
        """End the lap and return its seconds; the next one begins."""
        now = self._now()
        seconds, self._start = now - self._start, now
        return seconds

    def pause(self) -> None:
        self._paused = self._now()

    def resume(self) -> None:
        """Resume, on any thread: this thread's clock now continues from the value of the other thread's clock at
        `pause`."""
        self._start += self._now() - self._paused
