"""What was found out about engines on this machine, kept."""

from dataclasses import dataclass, field
from pathlib import Path

from speccompile.bundle.cache import cache_folder, default_limit
from speccompile.bundle.result_cache import ResultCache

NAME = "checked"
"""The folder of these records, among the caches."""


def default_folder() -> Path:
    """Of this module's records."""
    return cache_folder(NAME)


@dataclass(frozen=True)
class InvarianceCache(ResultCache):
    """Which engines were found exact on this processor."""

    folder: Path = field(default_factory=default_folder)
    limit: float = field(default_factory=default_limit)
