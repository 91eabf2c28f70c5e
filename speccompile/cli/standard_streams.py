"""Standard streams, arguments and names of files as a launcher leaves them: closed, or in an encoding that has no more
than ASCII."""

import codecs
import io
import os
import sys
from typing import Any, TextIO


def replace_closed_streams() -> None:
    """Open the null device in place of the standard streams that are closed: nothing is read from it, and what is
    written is gone. Else the next file would get the number of one, and what libraries and other programs print would
    be written into that file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            opened = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, opened)


STDOUT = "stdout"


def drop_output() -> None:
    """Let the null device take what is left to write to stdout: the flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _NamedStream(io.FileIO):
    """Standard stream whose errors name it, as those of files do. label: its name."""

    def __init__(self, number: int, label: str) -> None:
        super().__init__(number, "wb", closefd=False)
        self._label = label

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._label
            raise


def name_in_errors(stdout: TextIO) -> TextIO:
    """Return a stream in place of stdout whose errors, such as that of a full disk, name it."""
    stdout.flush()
    raw = _NamedStream(stdout.fileno(), STDOUT)
    is_buffered = isinstance(stdout.buffer, io.BufferedIOBase)
    return io.TextIOWrapper(
        io.BufferedWriter(raw) if is_buffered else raw,
        encoding=stdout.encoding, errors=stdout.errors, line_buffering=bool(stdout.line_buffering),
        write_through=not is_buffered,
    )  # fmt: skip


def start_again_with_utf8() -> None:
    """Replace the process by one in Python's UTF-8 mode where arguments and names of files are ASCII: Python does so
    itself for the locale C, but not for every locale, nor where $PYTHONUTF8 is 0. In prompts, recipes and paths other
    characters would be bytes without a meaning."""
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"  # and for the processes that this one starts
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def read_utf8_instead_of_ascii(stdin: TextIO) -> None:
    """Read UTF-8 where the locale or $PYTHONIOENCODING says ASCII: what is typed is never less than that. Bytes that
    are no UTF-8 are left for the message that refuses them."""
    if codecs.lookup(stdin.encoding).name == "ascii":
        stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[attr-defined]
