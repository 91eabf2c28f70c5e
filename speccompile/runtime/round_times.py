"""Times of rounds on this machine, kept by bundle, engine and processor, so that a process need not find them again.

How often drafts are accepted holds on every machine and lies in the bundle; what rounds cost belongs to the processor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from speccompile.bundle.cache import cache_folder, default_limit
from speccompile.bundle.hashes import HASHES
from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.result_cache import ResultCache
from speccompile.runtime.window_invariance import engine_key

NAME = "times"
"""Folder of these records in the cache folder."""

FORMAT = 1
"""Version of a record."""

CHANGED = 1.25
"""Factor by which a time must differ from the recorded one before the record is written again."""


@dataclass(frozen=True)
class RoundTimesCache(ResultCache):
    """Cache of the records, one file each."""

    folder: Path = field(default_factory=lambda: cache_folder(NAME))
    limit: float = field(default_factory=default_limit)


class RecordedTimes:
    """The record of one engine of a bundle, as `SpeedupModel.measured_times` returns it.

    known: what was recorded; None without a record, and where it is damaged.
    """

    def __init__(self, key: dict[str, Any]) -> None:
        self._cache, self._key = RoundTimesCache(), key
        found = self._cache.read(key)
        self.known = found if found is not None and _is_whole(found) else None

    @classmethod
    def find(cls, folder: Path, entry: EngineEntry, threads: int | None) -> "RecordedTimes | None":
        """Return the record of an engine; None for folders without hashes, as while a bundle is built, and for GPUs,
        whose clocks the key does not tell."""
        if entry.provider != "cpu" or not (folder / HASHES).is_file():
            return None
        return cls(engine_key(folder, entry, threads) | {"times": FORMAT, "threads": threads})

    def update(self, measured: Mapping[str, Any] | None) -> None:
        """Write what was measured, where that is new or clearly different."""
        if measured is None or (self.known is not None and not _differ(self.known, measured)):
            return
        self.known = dict(measured)
        self._cache.store(self._key, self.known)


def _numbers(times: Mapping[str, Any]) -> dict[str, Any]:
    """Return all times of a record by name, those that may be 0 left out."""
    return {"autoregressive": times["autoregressive"], **times["windows"]}


def _is_whole(times: Mapping[str, Any]) -> bool:
    try:
        every = [*_numbers(times).values(), times["drafting"] + 1e-9, times["catch_up"] + 1e-9]
        return all(isfinite(each) and each > 0 for each in every) and all(map(str.isdigit, times["windows"]))
    except (KeyError, TypeError):
        return False


def _differ(known: Mapping[str, Any], measured: Mapping[str, Any]) -> bool:
    before, now = _numbers(known), _numbers(measured)
    return any(
        name not in before or not 1 / CHANGED < seconds / before[name] < CHANGED for name, seconds in now.items()
    )
