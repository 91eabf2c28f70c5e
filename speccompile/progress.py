"""Progress, reported through the logger "speccompile". Library code never prints: the command line shows the logger.

Every record of a step has an attribute `progress`, an `Event`, for those who show bars or JSON instead of lines.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOGGER = logging.getLogger("speccompile")

INTERVAL = 5.0
"""Seconds between two progress lines of a step, and before the first one: short steps log none."""
BEGIN, RUNNING, PROGRESS, END = "begin", "running", "progress", "end"


@dataclass(frozen=True)
class Event:
    """Progress of a step. kind: BEGIN, RUNNING (it still does), PROGRESS (so much is done) or END. seconds: since it
    began. done, total, unit: of PROGRESS; unit "bytes" or what is counted. left: estimated seconds, None if unknown."""

    kind: str
    step: str
    seconds: float
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    left: float | None = None


class _Clock:
    """Steps in progress, the innermost last; the time of the last line of any of them, and the seconds to the next."""

    def __init__(self) -> None:
        self.steps: list[object] = []
        self.latest = 0.0
        self.interval = INTERVAL
        self.lock = threading.Lock()


_CLOCK = _Clock()


def set_interval(seconds: float) -> None:
    """Log that a step still runs, and how far it is, every so many seconds."""
    _CLOCK.interval = seconds


def _log(event: Event, text: str, *values: object, level: int = logging.INFO) -> None:
    _CLOCK.latest = time.perf_counter()
    LOGGER.log(level, text, *values, extra={"progress": event})


@contextmanager
def log_step(title: str) -> Iterator[None]:
    """Log that a step of the work begins, every few seconds that it still runs, and its seconds if it took more than
    one. The end of a step that was shorter, or that failed, is logged for debugging."""
    start, level = time.perf_counter(), logging.DEBUG
    _log(Event(BEGIN, title, 0.0), "%s ...", title)
    try:
        with _heartbeat(title, start):
            yield
        level = logging.INFO if time.perf_counter() - start > 1 else logging.DEBUG
    finally:
        seconds = time.perf_counter() - start
        _log(Event(END, title, seconds), "%s: %.1f s", title, seconds, level=level)


@contextmanager
def _heartbeat(title: str, start: float) -> Iterator[None]:
    """Log that the step still runs whenever nothing was logged for some seconds, while it is the innermost one."""
    ended, step = threading.Event(), object()

    def beat() -> None:
        while not ended.wait(max(0.05, _CLOCK.latest + _CLOCK.interval - time.perf_counter())):
            now = time.perf_counter()
            with _CLOCK.lock:
                is_due = _CLOCK.steps[-1:] == [step] and now - _CLOCK.latest >= _CLOCK.interval
            if is_due:
                _log(Event(RUNNING, title, now - start), "%s: still running, %.0f s", title, now - start)
            elif now - _CLOCK.latest >= _CLOCK.interval:
                ended.wait(0.5)  # an inner step reports

    with _CLOCK.lock:
        _CLOCK.steps.append(step)
    thread = threading.Thread(target=beat, name="speccompile-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with _CLOCK.lock:
            _CLOCK.steps.remove(step)
        ended.set()
        thread.join()


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
            if now - latest < _CLOCK.interval:
                return
            latest = now
            spent = now - start
            left = spent * (total - done) / done if 0 < done < total else None
            event = Event(PROGRESS, title, spent, done, total, unit, left)
            _log(event, "%s: %s%s", title, _amounts(done, total, unit), time_left(spent, done, total))

    try:
        yield advance
    finally:
        if latest != start:
            spent = clock() - start
            event = Event(END, title, spent, done, total, unit)
            LOGGER.debug("%s: %s", title, _amounts(done, total, unit), extra={"progress": event})


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
