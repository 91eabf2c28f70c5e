"""Bars of the steps that run, on a terminal's stderr."""

import locale
import logging
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speccompile.progress import BEGIN, END, Event, format_amounts, format_left

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BAR_DELAY = 2.0
"""Seconds after which a step has a bar, and after which a bar without numbers moves."""
NARROW = 60
"""Columns of a terminal below which the bar itself and the time left make room for the title."""


@dataclass
class _Running:
    """A step that runs. begun: as `time.perf_counter`. depth: how often it has begun, for a counter may have the name
    of the step that it is in. event: the last one, which has the numbers."""

    begun: float
    event: Event
    depth: int = 0


class BarHandler(logging.Handler):
    """Show a bar for every step that lasts, and write other messages above them.

    Nothing is shown for steps that end before BAR_DELAY. The bars are gone when no step runs, when something is printed
    on stdout, and when the handler is closed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._running: dict[str, _Running] = {}
        self._closed = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._take(getattr(record, "progress", None), record)
        except Exception:  # as all handlers do: logging must not end the work
            self.handleError(record)

    def close(self) -> None:
        """Remove the bars, for good."""
        self._closed = True
        self.hide()
        super().close()

    def hide(self) -> None:
        """Remove the bars until a step tells how far it is."""
        self.acquire()
        try:
            if self._bars is None:
                return
            bars, self._bars = self._bars, None
            self._tasks.clear()
            if isinstance(sys.stdout, _HidingOutput):
                sys.stdout = sys.stdout.output
            bars.stop()
        finally:
            self.release()

    def _take(self, event: Event | None, record: logging.LogRecord) -> None:
        if event is None:
            self._write(record.getMessage())
            return
        if event.kind == END:
            self._end(event.step)
            if record.levelno >= logging.INFO:
                self._write(record.getMessage())
        else:
            running = self._running.setdefault(event.step, _Running(time.perf_counter() - event.seconds, event))
            running.depth += event.kind == BEGIN
            running.event = event if event.total is not None else running.event
        self._show()

    def _write(self, text: str) -> None:
        if self._bars is None:
            print(text, file=sys.stderr)  # noqa: T201 - what is shown on stderr is this module's work
        else:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _end(self, step: str) -> None:
        running = self._running.get(step)
        if running is None:
            return
        running.depth -= 1
        if running.depth > 0:
            return
        del self._running[step]
        if self._bars is not None and step in self._tasks:
            self._bars.remove_task(self._tasks.pop(step))
        if not self._tasks:
            self.hide()

    def _show(self) -> None:
        """Show all steps that have lasted for BAR_DELAY, with their latest numbers."""
        if self._closed:
            return
        for step, running in self._running.items():
            if time.perf_counter() - running.begun < BAR_DELAY:
                continue
            if self._bars is None:
                self._start()
            assert self._bars is not None, "it was started"
            if step not in self._tasks:
                self._tasks[step] = self._bars.add_task(step, total=None, amounts="", left="")
            task = next(each for each in self._bars.tasks if each.id == self._tasks[step])
            task.start_time, event = running.begun, running.event
            if event.done is not None and event.total is not None and event.unit is not None:
                task.fields["amounts"] = format_amounts(event.done, event.total, event.unit)
                task.fields["left"] = format_left(event.left)
                self._bars.update(task.id, total=event.total, completed=event.done)

    def _start(self) -> None:
        self._bars = _new_bars()
        self._bars.start()
        if sys.stdout.isatty():
            sys.stdout = _HidingOutput(sys.stdout, self)


class _HidingOutput:
    """A terminal's stdout while there are bars on stderr, which is the same terminal: bars go when it is used."""

    def __init__(self, output: Any, bars: BarHandler) -> None:
        self.output = output
        self._bars = bars

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "writelines", "buffer"):
            self._bars.hide()
        return getattr(self.output, name)


def _new_bars() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    class AsciiConsole(Console):
        """A console that writes ASCII alone."""

        @property
        def encoding(self) -> str:
            return "ascii"

    console = Console(stderr=True) if is_utf8() else AsciiConsole(stderr=True)
    title = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="crop"))
    amounts, left = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("amounts", "left"))
    columns: list[Any] = [SpinnerColumn("line"), title, amounts, TimeElapsedColumn()]
    if console.width >= NARROW:
        columns[2:] = [BarColumn(bar_width=20), amounts, TimeElapsedColumn(), left]
    return Progress(*columns, console=console, transient=True, expand=True, redirect_stdout=False)


def is_utf8() -> bool:
    """Return whether the terminal's encoding is UTF-8, which Python assumes in the locale C too."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return all("utf8" in name.lower().replace("-", "") for name in (encoding, locale.getencoding()))
