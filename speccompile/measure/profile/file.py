"""A profile and its file: one JSON object of at most 2 KB, with four significant digits a figure."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError

FORMAT = 1
KEY = "speccompile_profile"
"""Key of the format's version, by which such a file is recognized."""

MOST_BYTES = 1 << 16
"""Larger files are not read: they are no profiles."""


@dataclass(frozen=True)
class Profile:
    """Times of the kernels on one device. linear: precision -> for every footprint (bytes of weights that a run reads)
    and number of rows, the seconds of a million weights. attend: by rows, the seconds of attention for a million
    (committed tokens x heads x numbers of a head). gate: seconds of a million numbers that a gate, or another function
    of rows, gives; argmax: seconds of a million logits. bandwidth: gigabytes a second
    by footprint. run_seconds: of a run beside its nodes; node_seconds: of a node beside its work."""

    processor: str
    architecture: str
    kernels: str
    threads: int
    memory_bytes: int
    date: str
    versions: dict[str, str]
    rows: tuple[int, ...]
    footprints: tuple[int, ...]
    bandwidth: tuple[float, ...]
    run_seconds: float
    node_seconds: float
    linear: dict[str, tuple[tuple[float, ...], ...]]
    attend: tuple[float, ...]
    gate: float
    argmax: float

    def to_json(self) -> dict[str, Any]:
        """Return the file's object: times in microseconds, bandwidth in GB/s, footprints in MiB."""
        return {
            KEY: FORMAT,
            "processor": self.processor,
            "architecture": self.architecture,
            "kernels": self.kernels,
            "threads": self.threads,
            "memory_bytes": self.memory_bytes,
            "date": self.date,
            "versions": self.versions,
            "rows": list(self.rows),
            "footprints_mib": [size >> 20 for size in self.footprints],
            "bandwidth_gb_per_second": [_short(each) for each in self.bandwidth],
            "run_us": _short(self.run_seconds * 1e6),
            "node_us": _short(self.node_seconds * 1e6),
            "linear_us_per_million": {
                name: [[_short(each * 1e6) for each in row] for row in rows] for name, rows in self.linear.items()
            },
            "attend_us_per_million": [_short(each * 1e6) for each in self.attend],
            "gate_us_per_million": _short(self.gate * 1e6),
            "argmax_us_per_million": _short(self.argmax * 1e6),
        }


def write_profile(profile: Profile) -> str:
    """Return the text of the file."""
    return json.dumps(profile.to_json(), separators=(",", ":"), ensure_ascii=False) + "\n"


def read_profile(path: Path) -> Profile:
    """Read a profile. Raise UsageError for a file that is none, is damaged, or has another version's format."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: expected a profile, it cannot be read: {error.strerror}", hint=_HINT) from error
    try:
        data = json.loads(content) if len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected a profile, received no whole JSON: {error}", hint=_HINT) from error
    if not isinstance(data, dict) or KEY not in data:
        raise UsageError(f"{path}: expected a profile, received a file without the key {KEY!r}", hint=_HINT)
    return parse_profile(data, str(path))


_HINT = "`speccompile profile -o FILE` on the device writes one"


def parse_profile(data: dict[str, Any], where: str) -> Profile:
    """Return the profile of a file's object. where: for messages. Raise UsageError as `read_profile` does."""
    if data[KEY] != FORMAT:
        raise UsageError(f"{where}: received a profile of format {data[KEY]!r}, expected {FORMAT}", hint=_HINT)
    rows, footprints = _whole(data, "rows", where), _whole(data, "footprints_mib", where)
    linear = data.get("linear_us_per_million")
    if not isinstance(linear, dict) or "bfloat16" not in linear:
        raise _wrong(where, "linear_us_per_million", linear, "an object of precisions, bfloat16 among them")
    versions = data.get("versions")
    if not isinstance(versions, dict):
        raise _wrong(where, "versions", versions, "an object")
    return Profile(
        processor=_text(data, "processor", where),
        architecture=_text(data, "architecture", where),
        kernels=_text(data, "kernels", where),
        threads=_number(data, "threads", where, whole=True),
        memory_bytes=_number(data, "memory_bytes", where, whole=True),
        date=_text(data, "date", where),
        versions=versions,
        rows=rows,
        footprints=tuple(each << 20 for each in footprints),
        bandwidth=_figures(data.get("bandwidth_gb_per_second"), len(footprints), "bandwidth_gb_per_second", where),
        run_seconds=_number(data, "run_us", where) / 1e6,
        node_seconds=_number(data, "node_us", where) / 1e6,
        linear={name: _table(table, footprints, rows, name, where) for name, table in linear.items()},
        attend=_micro(_figures(data.get("attend_us_per_million"), len(rows), "attend_us_per_million", where)),
        gate=_number(data, "gate_us_per_million", where) / 1e6,
        argmax=_number(data, "argmax_us_per_million", where) / 1e6,
    )


def _table(
    table: Any, footprints: tuple[int, ...], rows: tuple[int, ...], name: str, where: str
) -> tuple[tuple[float, ...], ...]:
    key = f"linear_us_per_million.{name}"
    if not isinstance(table, list) or len(table) != len(footprints):
        raise _wrong(where, key, table, f"{len(footprints)} rows of {len(rows)} figures")
    return tuple(_micro(_figures(each, len(rows), key, where)) for each in table)


def _whole(data: dict[str, Any], key: str, where: str) -> tuple[int, ...]:
    """Return ascending positive integers."""
    found = data.get(key)
    if (
        not isinstance(found, list)
        or not found
        or not all(type(each) is int and each > 0 for each in found)
        or sorted(set(found)) != found
    ):
        raise _wrong(where, key, found, "ascending positive integers")
    return tuple(found)


def _figures(found: Any, count: int, key: str, where: str) -> tuple[float, ...]:
    if not isinstance(found, list) or len(found) != count or not all(map(_is_figure, found)):
        raise _wrong(where, key, found, f"{count} figures of zero or more")
    return tuple(float(each) for each in found)


def _number(data: dict[str, Any], key: str, where: str, *, whole: bool = False) -> Any:
    found = data.get(key)
    if not _is_figure(found) or (whole and (type(found) is not int or found < 1)):
        raise _wrong(where, key, found, "a positive integer" if whole else "a number of zero or more")
    return found


def _text(data: dict[str, Any], key: str, where: str) -> str:
    found = data.get(key)
    if not isinstance(found, str):
        raise _wrong(where, key, found, "a text")
    return found


def _is_figure(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found) and found >= 0


def _wrong(where: str, key: str, received: Any, expected: str) -> UsageError:
    shown = "nothing" if received is None else json.dumps(received)[:60]
    return UsageError(f"{where}: {key}: received {shown}, expected {expected}", hint=_HINT)


def _micro(figures: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(each / 1e6 for each in figures)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
