"""Times of rounds on this machine, kept by bundle, engine and processor, so that a process need not find them again.

How often drafts are accepted holds on every machine and lies in the bundle; what rounds cost belongs to the processor.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from speccompile.bundle.result_cache import ResultCache

NAME = "times"
"""Folder of these records in the cache folder."""

FORMAT = 2
"""Version of a record."""

PROCESSES = 8
"""Maximum number of processes in a record's mean: one alone may have met a busy machine."""

CHANGED = 0.05
"""Share by which a time must change before the record is written again."""


class RecordedTimes:
    """The record of one engine of a bundle: what `SpeedupModel.measured_times` returns, and `processes`, their number.

    known: the record when this was made; None without one, and if it is damaged.
    """

    def __init__(self, key: dict[str, Any]) -> None:
        self._cache, self._key = ResultCache.named(NAME), key
        found = self._cache.read(key)
        self.known = found if found is not None and _is_whole(found) else None
        self._written = self.known

    @classmethod
    def find(cls, engine: Mapping[str, Any] | None, threads: int | None) -> "RecordedTimes | None":
        """Return the record of an engine, None if nothing is cached for it. engine: its `engine_key`."""
        return None if engine is None else cls({**engine, "times": FORMAT, "threads": threads})

    def begin(self, measured: Mapping[str, Any] | None) -> None:
        """Record the times measured when the engine was opened, as the mean with the recorded ones; None
        changes nothing. Unlike `update`, which runs after every generation, write it however little it changes: or a
        record that a busy machine made would hardly move."""
        if measured is not None:
            self.known = self._written = self._with(measured)
            self._cache.store(self._key, self.known)

    def _with(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        return {**measured, "processes": 1} if self.known is None else _mean(self.known, measured)

    def update(self, measured: Mapping[str, Any] | None) -> None:
        """Write the mean of the record and what this process has measured until now, where that is news."""
        if measured is None:
            return
        found = self._with(measured)
        if self._written is None or _differ(self._written, found):
            self._written = found
            self._cache.store(self._key, found)


def _mean(known: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with one process more. Windows that this one did not verify stay as they are."""
    count = min(known["processes"], PROCESSES - 1)

    def time(before: float, now: float) -> float:
        return (count * before + now) / (count + 1) if before and now else before or now

    before, now = known["windows"], measured["windows"]
    windows = {width: time(before.get(width, 0.0), now.get(width, 0.0)) for width in {**before, **now}}
    found = {name: time(known[name], measured[name]) for name in ("autoregressive", "drafting", "catch_up")}
    return found | {"windows": windows, "processes": count + 1}


_MOST_DIGITS = 9
"""Maximum number of digits of a window's width in the cache."""


def _numbers(times: Mapping[str, Any]) -> dict[str, Any]:
    """Return all times of a record by name, those that may be 0 left out."""
    return {"autoregressive": times["autoregressive"], **times["windows"]}


def _is_whole(times: Mapping[str, Any]) -> bool:
    try:
        every = [*_numbers(times).values(), times["drafting"] + 1e-9, times["catch_up"] + 1e-9]
        is_counted = isinstance(times["processes"], int) and times["processes"] > 0
        are_widths = all(width.isdecimal() and len(width) <= _MOST_DIGITS for width in times["windows"])
        return is_counted and are_widths and all(isfinite(e) and e > 0 for e in every)
    except (KeyError, TypeError):
        return False


def _differ(known: Mapping[str, Any], merged: Mapping[str, Any]) -> bool:
    before, now = _numbers(known), _numbers(merged)
    return any(name not in before or abs(seconds / before[name] - 1) > CHANGED for name, seconds in now.items())
