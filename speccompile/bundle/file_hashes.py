"""Content hashes of files: computed once for each file, and cached in the user's cache folder.

A record holds the size, modification time and inode of the file when it was hashed. A file with the same values is not
read again.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from speccompile.bundle.hashes import new_hasher
from speccompile.bundle.result_cache import ResultCache
from speccompile.errors import BundleError
from speccompile.machine.plain_files import path_text

NAME = "hashes"
"""Name of the cache."""

MIN_STAMP_AGE = 2.0
"""Minimum age of a modification time, in seconds. A file that changed later may change again within the same time: FAT
has steps of two seconds, other filesystems of the kernel's ticks of some milliseconds. Its hash is not cached."""

_AT_A_TIME = 1 << 24  # bytes: enough for all cores

Advance = Callable[[int], object]
"""Function that receives the number of further bytes that are done."""


@dataclass(frozen=True)
class FileHashCache(ResultCache):
    """Cached hashes of files, by path."""

    def hash_of(self, path: Path, advance: Advance = int) -> str:
        """See `cached_file_hash`."""
        try:
            return self._hash_of(path.resolve(strict=True), advance)
        except OSError as error:
            raise BundleError(
                f"{path}: cannot be read: {error.strerror}", hint="check that the file is there and may be read"
            ) from error

    def _hash_of(self, path: Path, advance: Advance) -> str:
        begin, before = time.time(), _stamp(path)
        key = {"path": path_text(path)}
        match self.read(key):
            case {"file": dict(known), "blake3": str(digest)} if known == before and _DIGEST.fullmatch(digest):
                advance(before["size"])
                return digest
        found = _hash(path, advance)
        if before["modified"] < (begin - MIN_STAMP_AGE) * 1e9 and _stamp(path) == before:
            self.store(key, {"file": before, "blake3": found})
        return found


def cached_file_hash(path: Path, advance: Advance = int) -> str:
    """Return BLAKE3 of a file's content in hexadecimal digits, computed on all cores; a known file is not read.
    advance: receives the number of bytes done, for `progress.progress_counter`.

    Raise BundleError for a file that cannot be read, UsageError for a limit of the caches that is no number.
    """
    return FileHashCache.named(NAME).hash_of(path, advance)


_DIGEST = re.compile(r"[0-9a-f]{64}")


def _hash(path: Path, advance: Advance) -> str:
    """Return the hash of a file. It is read, not mapped: if another process truncates a mapped file, this process
    dies."""
    hasher, block = new_hasher(), memoryview(bytearray(_AT_A_TIME))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            hasher.update(block[:count])
            advance(count)
    return hasher.hexdigest()


def _stamp(path: Path) -> dict[str, int]:
    """Return the values that identify a file's state. modified: in nanoseconds since 1970."""
    stat = path.stat()
    return {"size": stat.st_size, "modified": stat.st_mtime_ns, "inode": stat.st_ino}
