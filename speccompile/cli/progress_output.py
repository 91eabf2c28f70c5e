"""How a command shows its progress on stderr: as lines, bars, JSON or not at all."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from speccompile import progress
from speccompile.cli.progress_bars import BAR_DELAY, BarHandler
from speccompile.progress import LOGGER, Event

AUTO, BARS, PLAIN, JSON, NONE = FORMS = ("auto", "bars", "plain", "json", "none")
"""Values of --progress. auto: bars on a terminal, else plain lines."""


class PlainHandler(logging.StreamHandler):
    """Write the messages as they are."""


class JsonHandler(PlainHandler):
    """Write one JSON object a line: an event of a step, a message with its level, or why the command failed."""

    def format(self, record: logging.LogRecord) -> str:
        event: Event | None = getattr(record, "progress", None)
        if failure := getattr(record, "failure", None):
            return json.dumps({"event": "error"} | failure)
        if event is None:
            return json.dumps({"event": "message", "level": record.levelname.lower(), "message": record.getMessage()})
        numbers = {"done": event.done, "total": event.total, "unit": event.unit, "left": event.left}
        data: dict[str, Any] = {"event": event.kind, "step": event.step, "seconds": round(event.seconds, 3)}
        return json.dumps(data | {name: value for name, value in numbers.items() if value is not None})


def shows_bars() -> bool:
    """Return whether bars can be shown: on a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb", "unknown")


class _Details(logging.Filter):
    """Filter of log records for debugging: only ends of steps pass, unless --verbose is given."""

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
