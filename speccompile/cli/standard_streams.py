"""Standard streams, arguments and names of files as a launcher leaves them: closed, or in an encoding that has no more
than ASCII."""

import codecs
import os
import sys
from typing import TextIO


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
