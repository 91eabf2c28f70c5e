"""Folders that several processes use at once: locks that end with their process, and files that are on the disk."""

import os
from pathlib import Path


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
