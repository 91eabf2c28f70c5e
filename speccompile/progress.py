"""Progress, reported through the logger "speccompile". Library code never prints: the command line shows the logger.

Every record of a step has an attribute `progress`, an `Event`, for those who show bars or JSON instead of lines.
"""

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

LOGGER = logging.getLogger("speccompile")

INTERVAL = 3.0
"""Seconds between two progress lines of a step, and before the first one: short steps log none. Nobody waits for more
than five: where a library holds the interpreter, or the machine is busy, a line comes up to two seconds late."""
BEGIN, RUNNING, PROGRESS, END = "begin", "running", "progress", "end"


@dataclass(frozen=True)
class Event:
    """Progress of a step. kind: BEGIN, RUNNING (it still does), PROGRESS (so much is done) or END. seconds: since it
    began. done, total, unit: of steps that count; unit: "bytes", or what a step is. left: estimated seconds, None if
    unknown."""

    kind: str
    step: str
    seconds: float
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    left: float | None = None


@dataclass(frozen=True, eq=False)
class _Step:
    """A step in progress. tell: logs how far it is."""

    title: str
    tell: Callable[[], None]


class _Watch:
    """The steps in progress, and a thread that lets the innermost one tell how far it is whenever nothing was logged
    for some seconds. The thread lives while there is a step."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._shown: int | None = None  # number of the outermost steps that log, None for all
        self._interval = INTERVAL
        self.latest = 0.0

    @property
    def interval(self) -> float:
        """Return seconds of silence after which a step tells how far it is."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        with self._changed:
            self._interval = seconds
            self._changed.notify()

    @property
    def innermost(self) -> str | None:
        """Return the title of the step that began last, None without one."""
        return next((step.title for step in self._steps[-1:]), None)

    @contextmanager
    def step(self, step: _Step) -> Iterator[None]:
        """Watch a step inside a `with` block. Nothing of it is told after the block."""
        with self._changed:
            self._steps.append(step)
            if self._thread is None:
                self.latest = time.perf_counter()
                self._thread = threading.Thread(target=self._run, name="speccompile-progress", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._steps.remove(step)
                ended = None if self._steps else self._thread
                if ended is not None:
                    self._thread = None
                    self._changed.notify()
            if ended is not None:
                ended.join()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Let only the steps that run now log, and none that begins inside a `with` block."""
        before, self._shown = self._shown, len(self._steps) if self._shown is None else self._shown
        try:
            yield
        finally:
            self._shown = before

    def hides(self, title: str) -> bool:
        """Return whether nothing may be logged of a step."""
        return self._shown is not None and all(step.title != title for step in self._steps[: self._shown])

    def _run(self) -> None:
        with self._changed:
            while self._thread is threading.current_thread():
                quiet_for = time.perf_counter() - self.latest
                if quiet_for < self._interval:
                    self._changed.wait(self._interval - quiet_for)
                    continue
                self.latest = time.perf_counter()
                if shown := self._steps[: self._shown]:
                    shown[-1].tell()


_WATCH = _Watch()


def set_interval(seconds: float) -> None:
    """Log that a step still runs, and how far it is, every so many seconds."""
    _WATCH.interval = seconds


def log_event(event: Event, text: str, *values: object, level: int = logging.INFO) -> None:
    """Log what happened to a step, with a message of its own."""
    if _WATCH.hides(event.step):
        return
    if LOGGER.isEnabledFor(level):
        _WATCH.latest = time.perf_counter()
    LOGGER.log(level, text, *values, extra={"progress": event})


@contextmanager
def log_step(title: str) -> Iterator[None]:
    """Log that a step of the work begins, every few seconds that it still runs, and its seconds if it took more than
    one. The end of a step that was shorter, or that failed, is logged for debugging."""
    with _running(title, logging.INFO):
        yield


@contextmanager
def loading_torch() -> Iterator[None]:
    """Log that PyTorch is loaded, around the first import of it. From a cold disk its libraries take longer than one
    should wait in silence, and while the linker reads them no thread can tell that something runs."""
    with nullcontext() if "torch" in sys.modules else log_step("loading PyTorch"):
        yield


@contextmanager
def heartbeat(title: str) -> Iterator[None]:
    """Log that something still runs whenever nothing else was logged for some seconds; its begin and end are logged for
    debugging. Inside a step of the same title that step tells it."""
    with nullcontext() if _WATCH.innermost == title else _running(title, logging.DEBUG):
        yield


@contextmanager
def _running(title: str, level: int) -> Iterator[None]:
    start, end_level = time.perf_counter(), logging.DEBUG

    def tell() -> None:
        seconds = time.perf_counter() - start
        if seconds < 1:  # what came before it was silent
            log_event(Event(RUNNING, title, seconds), "%s ...", title)
        else:
            log_event(Event(RUNNING, title, seconds), "%s: still running, %.0f s", title, seconds)

    log_event(Event(BEGIN, title, 0.0), "%s ...", title, level=level)
    try:
        with _WATCH.step(_Step(title, tell)):
            yield
        if time.perf_counter() - start > 1:
            end_level = level
    finally:
        seconds = time.perf_counter() - start
        log_event(Event(END, title, seconds), "%s: %.1f s", title, seconds, level=end_level)


@contextmanager
def quiet() -> Iterator[None]:
    """Log only warnings inside a `with` block, and that the steps around it still run."""

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or hasattr(record, "progress")

    LOGGER.addFilter(passes)
    try:
        with _WATCH.hidden():
            yield
    finally:
        LOGGER.removeFilter(passes)


@contextmanager
def progress_counter(
    title: str, total: float | Callable[[], float], unit: str, *, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Callable[[float], None]]:
    """Yield `advance(amount)`, which any thread may call: now and then, how much of `total` is done is logged.

    total: a function where it becomes known while the work is done. unit: "bytes", shown in MB or GB, or what is
    counted, as "layers". clock: seconds that only grow.
    """
    start = latest = clock()
    done, lock = 0.0, threading.Lock()

    def log(kind: str, now: float, level: int = logging.DEBUG) -> None:
        nonlocal latest
        latest = now
        spent, whole = now - start, total() if callable(total) else total
        left = seconds_left(spent, done, whole) if kind == PROGRESS else None
        rest = f", {format_left(left)}" if left is not None else ""
        event = Event(kind, title, spent, done, whole, unit, left)
        log_event(event, "%s: %s%s", title, format_amounts(done, whole, unit), rest, level=level)

    def advance(amount: float) -> None:
        nonlocal done
        with lock:
            done += amount
            now = clock()
            if now - latest >= _WATCH.interval:
                log(PROGRESS, now, logging.INFO)

    log(BEGIN, start)
    try:
        with _WATCH.step(_Step(title, lambda: log(PROGRESS, clock(), logging.INFO))):
            yield advance
    finally:
        log(END, clock())


def format_amounts(done: float, total: float, unit: str) -> str:
    """Return ".. of .. unit"; bytes in MB or GB."""
    if unit != "bytes":
        return f"{done:.0f} of {total:.0f} {unit}"
    scale, name, digits = (1e9, "GB", 1) if total >= 1e9 else (1e6, "MB", 0)
    return f"{done / scale:.{digits}f} of {total / scale:.{digits}f} {name}"


def seconds_left(seconds: float, done: float, total: float) -> float | None:
    """Return the seconds that the rest takes at the present rate; None before any progress and at the end."""
    return seconds * (total - done) / done if 0 < done < total else None


def format_left(seconds: float | None) -> str:
    """Return ".. left", rounded up: a step should not outlast its estimate. Return "" for None."""
    if seconds is None:
        return ""
    if math.ceil(seconds) < 60:
        return f"{math.ceil(seconds)} s left"
    hours, minutes = divmod(math.ceil(math.ceil(seconds) / 60), 60)
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min left"
