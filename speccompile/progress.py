"""Progress, reported through the logger "speccompile". Library code never prints: the command line shows the logger."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("speccompile")

INTERVAL = 5.0
"""Seconds between two progress lines of a step, and before the first one: short steps log none."""


@contextmanager
def log_step(title: str) -> Iterator[None]:
    """Log that a step of the work begins, and its seconds if it took more than one. A step that fails logs no end."""
    LOGGER.info("%s ...", title)
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    if seconds > 1:
        LOGGER.info("%s: %.1f s", title, seconds)


@contextmanager
def quiet() -> Iterator[None]:
    """Log only warnings inside a `with` block."""
    before = LOGGER.level
    LOGGER.setLevel(logging.WARNING)
    try:
        yield
    finally:
        LOGGER.setLevel(before)


@contextmanager
def progress_counter(
    title: str, total: float, unit: str, *, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Callable[[float], None]]:
    """Yield `advance(amount)`, which any thread may call: it logs now and then how much of `total` is done.

    unit: "bytes", shown in MB or GB, or what is counted, as "layers". clock: seconds that only grow.
    """
    start = latest = clock()
    done, lock = 0.0, threading.Lock()

    def advance(amount: float) -> None:
        nonlocal done, latest
        with lock:
            done += amount
            now = clock()
            if now - latest < INTERVAL:
                return
            latest = now
            LOGGER.info("%s: %s%s", title, _amounts(done, total, unit), time_left(now - start, done, total))

    yield advance


def _amounts(done: float, total: float, unit: str) -> str:
    if unit != "bytes":
        return f"{done:.0f} of {total:.0f} {unit}"
    scale, name, digits = (1e9, "GB", 1) if total >= 1e9 else (1e6, "MB", 0)
    return f"{done / scale:.{digits}f} of {total / scale:.{digits}f} {name}"


def time_left(seconds: float, done: float, total: float) -> str:
    """Return ", .. left" at the present rate, rounded up: a step should not outlast its estimate. Return "" before any
    progress."""
    if not 0 < done < total:
        return ""
    left = math.ceil(seconds * (total - done) / done)
    if left < 60:
        return f", {left} s left"
    hours, minutes = divmod(math.ceil(left / 60), 60)
    return f", {hours} h {minutes} min left" if hours else f", {minutes} min left"
