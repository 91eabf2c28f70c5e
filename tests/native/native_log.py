"""Log of the C ABI, in Python."""

import ctypes
from pathlib import Path

from tests.native.native_api import Sink, load


class Log:
    """Lines of spc_log_to as (level, text), from when it is made until `close`."""

    def __init__(self, library: Path) -> None:
        self.lines: list[tuple[int, str]] = []
        self._library = load(library)
        self._sink = Sink(lambda _user, level, line: self.lines.append((level, line.decode())))
        self._library.spc_log_to(self._sink, None)

    def close(self) -> None:
        self._library.spc_log_to(ctypes.cast(None, Sink), None)
