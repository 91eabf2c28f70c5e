"""Cache of results about engines on this machine."""

from dataclasses import dataclass, field
from pathlib import Path

from speccompile.bundle.cache import cache_folder, default_limit
from speccompile.bundle.result_cache import ResultCache

NAME = "checked"
"""Folder of these records, among the caches."""


def default_folder() -> Path:
    """Return the folder of these records."""
    return cache_folder(NAME)


@dataclass(frozen=True)
class InvarianceCache(ResultCache):
    """Cached results of the window-invariance check of engines on this processor."""

    folder: Path = field(default_factory=default_folder)
    limit: float = field(default_factory=default_limit)
