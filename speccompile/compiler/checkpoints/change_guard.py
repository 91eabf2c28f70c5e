"""Files that must not change while they are used."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from speccompile.errors import CheckpointError


@dataclass(frozen=True)
class FileStamp:
    """Stamp of a file that changes with it. size in bytes, modified in nanoseconds since 1970, inode: that of another
    file after a replacement."""

    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the stamp of the file to which a link leads. Raise OSError."""
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def __str__(self) -> str:
        seconds, fraction = divmod(self.modified, 10**9)
        time = datetime.fromtimestamp(seconds, UTC)
        return f"{self.size} bytes of {time:%Y-%m-%d %H:%M:%S}.{fraction:09d} (inode {self.inode})"


class ChangeGuard:
    """Files of a checkpoint, with their stamps now.

    As a context manager, it checks them when an error leaves it: a file that changes while it is read can cause any
    error.
    """

    def __init__(self, folder: Path, files: Iterable[Path]) -> None:
        """files: relative to `folder`. Raise OSError for a missing one."""
        self._stamps = {folder / file: FileStamp.of(folder / file) for file in files}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.check()

    def check(self) -> None:
        """Raise CheckpointError for the first file that has changed."""
        for path, before in self._stamps.items():
            try:
                now = str(found) if (found := FileStamp.of(path)) != before else None
            except FileNotFoundError:
                now = "no file"
            if now is not None:
                raise CheckpointError(
                    f"{path}: the checkpoint changed while it was built: received {now}, expected {before}",
                    hint="leave the checkpoint alone while it is built, and build again",
                )
