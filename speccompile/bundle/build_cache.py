"""On-disk cache of build steps, by key: see `speccompile.compiler.build.cached_steps`."""

from dataclasses import dataclass, field
from pathlib import Path

from speccompile.bundle.cache import FolderCache, cache_folder, default_limit


def default_folder() -> Path:
    """Return $SPECCOMPILE_CACHE_DIR/builds, or speccompile/builds in the user's cache folder."""
    return cache_folder("builds")


@dataclass(frozen=True)
class BuildCache(FolderCache):
    """Cache of build steps."""

    folder: Path = field(default_factory=default_folder)
    limit: float = field(default_factory=default_limit)
