"""Acceptance probabilities by depth: from a list, a report of `bench --json`, or a bundle's proof."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import PROOF
from speccompile.errors import UsageError

_HINT = "give probabilities such as 0.8,0.7,0.6, a file of `speccompile bench --json`, or a bundle's folder"


def read_acceptance(text: str) -> tuple[float, ...]:
    """Return, for every depth from 1 on, the probability that a draft token is accepted after those before it.

    text: numbers with commas between them, or the path of a file or of a bundle. Raise UsageError for others.
    """
    path = Path(text)
    if path.is_dir():
        path /= PROOF
    if path.is_file():
        return _checked(_read(path), str(path))
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--accept: received '{text}', expected numbers from 0 to 1 or a file that exists", hint=_HINT
        ) from None
    return _checked(numbers, "--accept")


def _read(path: Path) -> list[float]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--accept {path}: expected JSON that can be read: {error}", hint=_HINT) from error
    found = _of_bench(data) or _of_proof(data)
    if not found:
        raise UsageError(f"--accept {path}: received no acceptance by depth", hint=_HINT)
    return found


def _of_bench(data: Any) -> list[float]:
    """Return the acceptance in a report of `bench`, until the first depth that no round reached."""
    rows = data.get("acceptance_by_depth") if isinstance(data, dict) else None
    found = list[float]()
    for row in rows if isinstance(rows, list) else ():
        value = row.get("accepted_after_previous") if isinstance(row, dict) else None
        if value is None:
            break
        found.append(value)
    return found


def _of_proof(data: Any) -> list[float]:
    """Return the acceptance that a build's proof recorded: accepted over tried, of the first engine that has it."""
    engines = data.get("engines") if isinstance(data, dict) else None
    for row in engines if isinstance(engines, list) else ():
        counts = row.get("acceptance") if isinstance(row, dict) else None
        if isinstance(counts, dict) and counts.get("tried"):
            pairs = zip(counts.get("accepted", ()), counts["tried"], strict=False)
            return [accepted / tried for accepted, tried in pairs if tried]
    return []


def _checked(numbers: Sequence[Any], where: str) -> tuple[float, ...]:
    for depth, each in enumerate(numbers, 1):
        if not isinstance(each, int | float) or not 0 <= each <= 1:
            raise UsageError(
                f"{where}: received {each} at depth {depth}, expected a probability from 0 to 1", hint=_HINT
            )
    return tuple(float(each) for each in numbers)


def accepted_at_depth(probabilities: Sequence[float], depth: int) -> list[float]:
    """Return the share of rounds that accept the draft at every depth up to `depth`: products of the probabilities.

    The last probability stands for all deeper ones. One probability a gives a, a^2, .., as in Leviathan et al. 2023.
    """
    shares, share = list[float](), 1.0
    for index in range(depth):
        share *= probabilities[min(index, len(probabilities) - 1)]
        shares.append(share)
    return shares
