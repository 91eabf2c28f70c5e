"""On-disk cache of small results: one JSON file per key, named by the key's digest.

A file is replaced atomically, so that any number of processes may write it; a damaged file counts as absent.
"""

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.cache import Cache, Entry
from speccompile.bundle.folders import write_atomically
from speccompile.bundle.hashes import read_json
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError

_NAME = re.compile(r"[0-9a-f]{64}\.(json|\d+(-[0-9a-f]{8})?\.part)|\.[0-9a-f]{64}\.json\.\d+")
"""Names of the cache's own files: results, and temporary files of this version and of older ones."""


@dataclass(frozen=True)
class CachedResult(Entry):
    """Entry of the cache. found: the stored result; None when the file is unreadable."""

    found: dict[str, Any] | None


@dataclass(frozen=True)
class ResultCache(Cache):
    """Cache of results. Limits other than 0 have no effect, because results are small."""

    def read(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result for a key; None if there is none, or its file is damaged."""
        if not self.limit:
            return None
        path = self._path(key)
        with suppress(OSError):  # a read-only cache works as well
            os.utime(path)
        record = _read(path)
        return record.found if record else None

    def store(self, key: dict[str, Any], found: dict[str, Any]) -> None:
        """Store the result for a key. Ignore a cache that cannot be written."""
        if not self.limit:
            return
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(key), canonical_json({"key": key, "found": found}))

    def entries(self) -> list[CachedResult]:
        """Return all results, the last used first."""
        found = [_read(path) for path in self._paths() if path.suffix == ".json"]
        return sorted((record for record in found if record), key=lambda record: record.last_used, reverse=True)

    def clear(self) -> list[CachedResult]:
        """Remove all results, and temporary files of killed processes. Return the removed results."""
        removed = self.entries()
        for path in self._paths():
            path.unlink(missing_ok=True)
        return removed

    def _path(self, key: dict[str, Any]) -> Path:
        return self.folder / f"{hashlib.sha256(canonical_json(key)).hexdigest()}.json"

    def _paths(self) -> list[Path]:
        paths = self.folder.iterdir() if self.folder.exists() else ()
        return [path for path in paths if _NAME.fullmatch(path.name) and path.is_file()]


def _read(path: Path) -> CachedResult | None:
    """Return a result, or None if its file is missing or removed meanwhile."""
    try:
        stat = path.stat()
        content: Any = read_json(path)
    except OSError:
        return None
    except BundleError:
        content = None
    match content:
        case {"key": dict(), "found": dict()}:
            key, found = content["key"], content["found"]
        case _:
            key = found = None
    return CachedResult(path.name.partition(".")[0], stat.st_size, stat.st_mtime, key, found)
