"""Standard streams that are closed when the command begins, as `>&-` or a launcher leaves them."""

import os
import sys


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
