"""Built engines by what they were built from, so that nothing is built twice.

Engines are copied in and out: nothing that happens to a bundle reaches the cache.
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
    """$SPECCOMPILE_CACHE_DIR, or speccompile/engines in the user's folder for caches."""
    folder = os.environ.get(FOLDER)
    return Path(folder) if folder else user_folder("engines")


@dataclass(frozen=True)
class Cache(FolderCache):
    """The cache of engines."""

    folder: Path = field(default_factory=default_folder)
    limit: float = field(default_factory=default_limit)

    def load(self, key: Key, output: Path) -> dict[str, Any] | None:
        """Copy the engine of a key to `output` and return its report; None when there is none. A damaged one goes."""
        with self.open_entry(key.digest, "engine") as found:
            if found is None:
                return None
            entry, content = found
            _copy(entry / _ENGINE, output)
            report: dict[str, Any] = content["report"]
            return report

    def store(self, key: Key, engine: Path, report: dict[str, Any]) -> None:
        """Keep a copy of an engine, and let go of those unused for longest that the limit has no room for."""
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
