"""How a command shows its progress on stderr: as lines, bars, JSON or not at all."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from speccompile import progress
from speccompile.progress import BEGIN, END, LOGGER, Event

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

AUTO, BARS, PLAIN, JSON, NONE = FORMS = ("auto", "bars", "plain", "json", "none")
"""Values of --progress. auto: bars on a terminal, else plain lines."""

BAR_DELAY = 2.0
"""Seconds after which a step has a bar, and after which a bar without numbers moves."""


class PlainHandler(logging.StreamHandler):
    """Write the messages as they are."""


class JsonHandler(PlainHandler):
    """Write one JSON object a line: an event of a step, or a message with its level."""

    def format(self, record: logging.LogRecord) -> str:
        event: Event | None = getattr(record, "progress", None)
        if event is None:
            return json.dumps({"event": "message", "level": record.levelname.lower(), "message": record.getMessage()})
        numbers = {"done": event.done, "total": event.total, "unit": event.unit, "left": event.left}
        data: dict[str, Any] = {"event": event.kind, "step": event.step, "seconds": round(event.seconds, 3)}
        return json.dumps(data | {name: value for name, value in numbers.items() if value is not None})


class BarHandler(logging.Handler):
    """Show a bar for every step that lasts, and write other messages above them.

    Nothing is shown for steps that end before BAR_DELAY. The bars are gone when no step runs, and when it is closed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def emit(self, record: logging.LogRecord) -> None:
        event: Event | None = getattr(record, "progress", None)
        if event is None:
            self._write(record.getMessage())
        elif event.kind == END:
            self._end(event.step)
            if record.levelno >= logging.INFO:
                self._write(record.getMessage())
        elif event.kind != BEGIN:
            self._show(event)

    def close(self) -> None:
        """Remove the bars."""
        for step in [*self._tasks]:
            self._end(step)
        super().close()

    def _write(self, text: str) -> None:
        if self._bars is None:
            print(text, file=sys.stderr)  # noqa: T201 - what is shown on stderr is this module's work
        else:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self, event: Event) -> None:
        if self._bars is None:
            self._bars = _new_bars()
            self._bars.start()
        if event.step not in self._tasks:
            number = self._tasks[event.step] = self._bars.add_task(event.step, total=None)
            task = next(each for each in self._bars.tasks if each.id == number)
            task.start_time = (task.start_time or 0.0) - event.seconds
        if event.total is not None:
            self._bars.update(self._tasks[event.step], total=event.total, completed=event.done)

    def _end(self, step: str) -> None:
        task = self._tasks.pop(step, None)
        if self._bars is None or task is None:
            return
        self._bars.remove_task(task)
        if not self._tasks:
            self._bars.stop()
            self._bars = None


def _new_bars() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    return Progress(*columns, console=Console(stderr=True), transient=True)


def shows_bars() -> bool:
    """Return whether bars can be shown: on a terminal that can move its cursor, in an encoding that has them."""
    encoding = (getattr(sys.stderr, "encoding", None) or "").lower().replace("-", "")
    return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb") and encoding == "utf8"


class _Details(logging.Filter):
    """Filter of what is logged for debugging: only ends of steps pass, unless it is asked for."""

    def __init__(self, *, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def filter(self, record: logging.LogRecord) -> bool:
        return self._verbose or record.levelno >= logging.INFO or hasattr(record, "progress")


def choose(form: str, *, verbose: bool = False) -> None:
    """Show the progress of this run in a form of FORMS. verbose: details as well."""
    _remove_handlers()
    if form == NONE:
        LOGGER.setLevel(logging.WARNING)
    is_bars = form == BARS or (form == AUTO and shows_bars())
    handler: logging.Handler = BarHandler() if is_bars else JsonHandler() if form == JSON else PlainHandler()
    if is_bars or form == JSON or verbose:
        LOGGER.setLevel(logging.DEBUG)
        handler.addFilter(_Details(verbose=verbose))
    progress.set_interval(BAR_DELAY if is_bars else progress.INTERVAL)
    LOGGER.addHandler(handler)


def _remove_handlers() -> None:
    for handler in [*LOGGER.handlers]:
        if isinstance(handler, PlainHandler | BarHandler):
            LOGGER.removeHandler(handler)
            handler.close()


@contextmanager
def progress_on_stderr() -> Iterator[None]:
    """Show progress on stderr inside a `with` block, as bars or lines unless `choose` says otherwise."""
    LOGGER.setLevel(logging.INFO)
    choose(AUTO)
    try:
        yield
    finally:
        _remove_handlers()
        LOGGER.setLevel(logging.NOTSET)
        progress.set_interval(progress.INTERVAL)
