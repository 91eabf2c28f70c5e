"""Live table of a running comparison on stderr, best first, in place of bars."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from speccompile.cli.progress_bars import BarHandler
from speccompile.cli.progress_output import shows_bars
from speccompile.measure.compare.board import MEASURED, STARTED, Board, Row
from speccompile.measure.compare.estimate import duration
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

REFRESHES = 4
"""Refreshes of the table per second."""


@contextmanager
def live_table(board: Board) -> Iterator[None]:
    """Show the board's rows inside a `with` block where bars would be shown, with warnings above them; else do nothing:
    the board's lines are logged."""
    bars = next((handler for handler in LOGGER.handlers if isinstance(handler, BarHandler)), None)
    if bars is None or not shows_bars():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    above = _Above(console)
    LOGGER.removeHandler(bars)
    LOGGER.addHandler(above)
    try:
        # stdout may be a file: nothing that is written there passes through the table
        with Live(
            get_renderable=lambda: make_table(board), console=console, refresh_per_second=REFRESHES, transient=True,
            redirect_stdout=False,
        ):  # fmt: skip
            yield
    finally:
        LOGGER.removeHandler(above)
        LOGGER.addHandler(bars)


class _Above(logging.Handler):
    """Handler that writes warnings, and the details of --verbose, above the table; the table tells the rest."""

    def __init__(self, console: "Console") -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


def make_table(board: Board) -> "Table":
    """Return the rows so far, and below them how many methods are done and the time that is left."""
    from rich import box
    from rich.table import Table

    left = duration(board.seconds_left)
    caption = f"{board.done} of {len(board.rows)} methods, about {left} left; Ctrl-C ends with the table so far"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("method", no_wrap=True)
    for title in ("ratio", "tokens/s", "accepted", "prompts"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for row in board.sorted_rows:
        table.add_row(*_cells(row, board.prompts), style="" if row.state in STARTED else "dim")
    return table


def _cells(row: Row, prompts: int) -> tuple[str, ...]:
    def shown(value: float | None, digits: int = 2) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    done = f"{row.prompts} of {prompts}" if row.state in STARTED else ""
    state = f"{row.passes} passes" if row.state == MEASURED and row.passes > 1 else row.state
    note = f"{state}: {row.note}" if row.note else state
    return row.name, shown(row.ratio), shown(row.tokens_per_second, 1), shown(row.mean_accepted), done, note
