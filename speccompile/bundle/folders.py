"""Files and folders that several processes use at once: locks that end with their process, syncing to disk, and atomic
replacement of a file or folder."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

from speccompile.progress import LOGGER

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def lock_folder(folder: Path, *, shared: bool = False, wait: bool = False) -> int | None:
    """Return an open file that locks `folder` until it is closed. A lock ends with its process, however that ends.

    Return None when another process holds the lock (`wait`: say so, and wait) and on filesystems without locks. A
    process id would be no substitute: it may be reused, and means nothing in another container. Raise OSError when
    there is no such folder.
    """
    import fcntl

    handle, kind = os.open(folder, os.O_RDONLY), fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            LOGGER.info("waiting for another process that writes to %s ...", folder)
            fcntl.flock(handle, kind)
    except OSError:
        os.close(handle)
        return None
    except BaseException:  # Ctrl-C while it waits
        os.close(handle)
        raise
    return handle


def sync(*paths: Path) -> None:
    """Sync files and folders to disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name `path` in an OSError of the block: a write to a full disk names no file, other writes a hidden one."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the content of a file atomically: concurrent readers find the old content or the new, complete.

    The content is first written to a temporary file in the same folder: one without a name where the system has those,
    so that a killed process leaves nothing, else one with a hidden name. Raise OSError if the temporary file cannot be
    written or moved; it is then removed, and the old file is unchanged. mode: permissions of the new file, before the
    process's umask.
    """
    with naming_file(path):
        part = _written_unnamed(path, content, mode) or _written_named(path, content, mode)
    try:
        part.replace(path)
    except BaseException:
        with suppress(OSError):  # the disk is gone
            part.unlink()
        raise


def _written_unnamed(path: Path, content: bytes, mode: int) -> Path | None:
    """Write a file without a name, then give it one. Return its path; None where there are no such files."""
    if sys.platform != "linux":
        return None
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError:  # no such files here, or no permission: `_written_named` then raises with the file's name
        return None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        try:  # a descriptor of a folder makes Python follow the link of /proc, where that is mounted
            return _in_free_name(path, partial(os.link, f"/proc/self/fd/{handle}", src_dir_fd=handle))
        except FileNotFoundError:
            return None


def _written_named(path: Path, content: bytes, mode: int) -> Path:
    part = _in_free_name(path, partial(Path.touch, mode=mode, exist_ok=False))
    try:
        part.write_bytes(content)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    return part


def _in_free_name(path: Path, make: Callable[[Path], None]) -> Path:
    """Make a file under an unused hidden name, and return its path. A process id alone is not unique: threads share
    one, and containers repeat them."""
    for number in count(os.getpid()):
        part = path.with_name(f".{path.name}.{number}")
        with suppress(FileExistsError):
            make(part)
            return part
    raise AssertionError("numbers do not end")


def replace_folder(folder: Path, output: Path) -> None:
    """Move `folder` to `output`, in the same filesystem; the old content of `output` is then in `folder`.

    Raise OSError when a folder cannot be moved; `output` is then the complete old one or the complete new one.
    """
    if not output.exists():
        folder.rename(output)
    elif not _exchange(folder, output):
        _exchange_by_moves(folder, output)


def _exchange(folder: Path, output: Path) -> bool:
    """Swap two folders atomically. Return False, with nothing changed, if the system or the filesystem has no such
    call."""
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
