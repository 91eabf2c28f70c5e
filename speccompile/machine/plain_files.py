"""Files that are read whole: regular ones, up to a size. Paths as texts."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

TEXT_BYTES = 1 << 30
"""Largest file that is read whole where nothing else limits it."""


def path_text(path: Path | str) -> str:
    """Return a path as text that JSON in UTF-8 can hold: the same in every locale; bytes that are no UTF-8 as \\xff."""
    return os.fsencode(path).decode(errors="backslashreplace")


def read_plain(path: Path, most: int = TEXT_BYTES) -> bytes:
    """Return the bytes of a regular file.

    Raise OSError for one that cannot be read, for a folder, pipe, device or socket, which may have no end or never
    answer, and for more than `most` bytes.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most) + 1)  # one byte more, to notice a file that grows
        while len(content) > size and len(content) <= most and (more := file.read(1 << 20)):
            content += more  # the file grows, or has no size, as those of /proc
    if len(content) > most:
        raise OSError(errno.EFBIG, f"received more than {most} bytes, which no such file has", str(path))
    return content


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raise OSError as `read_plain` does."""
    # A pipe nobody writes to would not even open.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):  # `open` would name the descriptor instead of the path
        os.close(descriptor)
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "received a pipe, device or socket, expected a regular file", str(path))
    return open(descriptor, "rb")  # noqa: PTH123 - of a descriptor
