"""Lines about a compilation: the number of files, the expected time, and the progress.

In: lines of CMake's build program. Out: lines on stderr, and one on the terminal: pip hides stderr unless it gets -v.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from types import TracebackType

SECONDS_A_FILE = 4.2
"""Time of one core for a file, on average: all 113 files take g++ 12 four minutes on two cores."""

EVERY = 15.0
"""Seconds between two lines."""

TERMINAL = Path("/dev/tty")
"""Terminal of this process, whatever its stderr is."""

_DONE = re.compile(r"\[\s*(\d+)/(\d+)\] (?:Building|Linking)")  # Ninja's; make has percents, of an unknown number


class CompileProgress:
    """Context manager that counts compiled files, and logs the count."""

    def __init__(self, *, write: Callable[[str], object] | None = None, every: float = EVERY) -> None:
        """write: for lines without their end, by default to stderr. every: seconds between two lines."""
        self._write = write or _to_stderr
        self._every = every
        self._start = perf_counter()
        self._done = self._total = 0
        self._ended = Event()
        self._thread = Thread(target=self._tell, daemon=True)

    def __enter__(self) -> "CompileProgress":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def read(self, line: str) -> None:
        """Take a line of the build program."""
        if (found := _DONE.match(line)) is None:
            return
        is_first = not self._total
        self._done, self._total = int(found[1]), int(found[2])
        if is_first:
            text = f"speccompile: compiling {self._total} files of C++, {_estimate(self._total)}"
            self._write(text)
            _to_terminal(f"{text}; pip shows more with -v")

    def _tell(self) -> None:
        while not self._ended.wait(self._every):
            of = f"{self._done} of {self._total} files compiled" if self._total else "compiling"
            self._write(f"speccompile: {of}, {perf_counter() - self._start:.0f} s")


def _estimate(files: int) -> str:
    cores = os.cpu_count() or 1
    seconds = files * SECONDS_A_FILE / cores
    took = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} s"
    return f"about {took} on {cores} core{'s' if cores > 1 else ''}"


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _to_terminal(line: str) -> None:
    """Write a line to the terminal if this process has one and its stderr is none: pip keeps stderr to itself."""
    if sys.stderr.isatty():
        return
    try:
        with TERMINAL.open("w", encoding="utf-8") as terminal:
            terminal.write(f"\n{line}\n")
    except OSError:  # a job without a terminal, as in CI
        return
