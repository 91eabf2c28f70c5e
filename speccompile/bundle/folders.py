"""Files and folders that several processes use at once: locks that end with their process, files that are on the disk,
and one file or folder in the place of another.
"""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def lock_folder(folder: Path, *, shared: bool = False, wait: bool = False) -> int | None:
    """An open file that locks `folder` until it is closed. A lock ends with its process, however that ends.

    None when another process holds it (`wait`: waits for that one) and on filesystems without locks. A process id in
    place of the lock may be taken again, or mean nothing in a container. Raises OSError when there is no such folder.
    """
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def sync(*paths: Path) -> None:
    """Return when files and folders are on the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """Make `content` what the file holds: whoever reads it meanwhile finds the old content or the new, whole.

    It is written beside the file, under a hidden name with the process id. Raises OSError where that cannot be written
    or moved; the file is then as it was, and nothing beside it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except BaseException:
        with suppress(OSError):  # it was never made, or the disk has gone
            part.unlink()
        raise


def replace_folder(folder: Path, output: Path) -> None:
    """Put `folder` where `output` is, in the same filesystem; what was there is then in `folder`.

    Raises OSError when a folder cannot be moved; `output` is then the old one or the new one, whole.
    """
    if not output.exists():
        folder.rename(output)
    elif not _exchange(folder, output):
        _exchange_by_moves(folder, output)


def _exchange(folder: Path, output: Path) -> bool:
    """Swap two folders at one stroke. False, and nothing done, where the system or the filesystem has no such call."""
    call = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if call is None:
        return False
    first, second = os.fsencode(folder), os.fsencode(output)
    return bool(call(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE) == 0)


def _exchange_by_moves(folder: Path, output: Path) -> None:
    aside = folder.with_suffix(".old")
    output.rename(aside)
    try:
        folder.rename(output)
    except BaseException:
        if not output.exists():
            aside.rename(output)
        raise
    aside.rename(folder)
