"""Cache of built engines by their inputs, so that nothing is built twice.

Engines are copied in and out: changes of a bundle never reach the cache.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccompile.bundle.cache import FOLDER, FolderCache, default_limit, user_folder
from speccompile.compiler.engines.key import Key

_ENGINE = "engine"
_PART = ".part"


def default_folder() -> Path:
    """Return $SPECCOMPILE_CACHE_DIR, or speccompile/engines in the user's cache folder."""
    folder = os.environ.get(FOLDER)
    return Path(folder) if folder else user_folder("engines")


@dataclass(frozen=True)
class Cache(FolderCache):
    """The cache of engines."""

    folder: Path = field(default_factory=default_folder)
    limit: float = field(default_factory=default_limit)

    def load(self, key: Key, output: Path) -> dict[str, Any] | None:
        """Copy the engine of a key to `output` and return its report; None if there is none. Delete a damaged entry."""
        with self.open_entry(key.digest, "engine") as found:
            if found is None:
                return None
            entry, content = found
            _copy(entry / _ENGINE, output)
            report: dict[str, Any] = content["report"]
            return report

    def store(self, key: Key, engine: Path, report: dict[str, Any]) -> None:
        """Store a copy of an engine, and evict the least recently used entries beyond the size limit."""
        if engine.stat().st_size > self.limit:
            return
        with self.add_entry(key.digest, {"key": key.to_json(), "report": report}) as part:
            shutil.copyfile(engine, part / _ENGINE)


def _copy(source: Path, output: Path) -> None:
    part = output.with_name(f".{output.name}{_PART}")
    try:
        shutil.copyfile(source, part)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
