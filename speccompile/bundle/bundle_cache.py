"""Bundles of models that were run without a recipe, in the user's cache folder."""

from dataclasses import dataclass, field
from pathlib import Path

from speccompile.bundle.cache import FolderCache, cache_folder, default_limit

BUNDLE = "bundle"
"""Name of the bundle's folder in an entry."""


def default_folder() -> Path:
    """Return $SPECCOMPILE_CACHE_DIR/bundles, or speccompile/bundles in the user's cache folder."""
    return cache_folder("bundles")


@dataclass(frozen=True)
class BundleCache(FolderCache):
    """Cache of bundles. An entry's key says for which model it was built, and by which files."""

    folder: Path = field(default_factory=default_folder)
    limit: float = field(default_factory=default_limit)
