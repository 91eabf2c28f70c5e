"""Open files of checkpoints, which are read and not mapped."""

import os
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import CheckpointError


class OpenFile:
    """An open file, which stays the same file if its name is replaced. It is read, not mapped: truncating a mapped file
    would kill the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDONLY)
        stat = os.fstat(self._handle)
        self.identity = stat.st_dev, stat.st_ino

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)

    def read(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Read bytes, uint8 [length]. Raise CheckpointError if the file has become shorter."""
        found = np.empty(length, np.uint8)  # a bytearray would be filled with zeros first
        view, start = found.data, 0
        while start < length:
            count = os.preadv(self._handle, [view[start:]], offset + start)
            if count == 0:
                raise CheckpointError(
                    f"{self.path}: received {offset + start} bytes, expected {offset + length}: it has become shorter",
                    hint="leave the checkpoint alone while it is built, and build again",
                )
            start += count
        return found


_OPEN: WeakValueDictionary[tuple[int, int], OpenFile] = WeakValueDictionary()


def opened(path: Path) -> OpenFile:
    """Return an open file, shared by all weights in it for as long as one of them is referenced."""
    file = OpenFile(path)
    return _OPEN.setdefault(file.identity, file)
