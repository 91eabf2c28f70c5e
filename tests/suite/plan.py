"""Which tests a run takes, and in which order: what is decided from names, costs and seeds alone."""

import json
import math
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

SHARDS = 16
"""Parts of the sweep between which `--shard auto` chooses. Each has to stay below 12 minutes on two cores, also on slow
ones: of 12 parts the longest took 15 on a Zen 3."""

UNCUT = frozenset({"tests/compile/test_wheels.py"})
"""Files that lie in one shard whatever they cost: their first test makes what the others need, in minutes, and each
shard with one of the others would make it again."""

DEFAULT_SECONDS = 10.0
"""Of a file that tests/costs.json does not know."""

T = TypeVar("T")


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def read_costs(root: Path, tier: str) -> dict[str, float]:
    """Return file -> seconds of processor time of its tests of a tier, "first" or "sweep"."""
    path = root / "tests" / "costs.json"
    return json.loads(path.read_text(encoding="utf-8")).get(tier, {}) if path.exists() else {}


def head(root: Path) -> str:
    """Return the hash of the last commit."""
    try:
        run = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        raise pytest.UsageError(
            "'auto' is chosen by the last commit, and git is not installed: name a number"
        ) from None
    if run.returncode:
        raise pytest.UsageError(f"'auto' is chosen by the last commit, and git says: {run.stderr.strip()}")
    return run.stdout.strip()


def read_shard(text: str, root: Path) -> tuple[int, int]:
    """Return I and N of "I/N"; for "auto" those of the shard that the last commit chooses."""
    if text == "auto":
        return int(head(root), 16) % SHARDS + 1, SHARDS
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise pytest.UsageError(
            f"--shard: received '{text}', expected auto or I/N with I from 1 to N, as in 3/{SHARDS}"
        )
    return int(index), int(count)


def shards(nodeids: Sequence[str], costs: Mapping[str, float], count: int) -> list[set[str]]:
    """Return the tests of each shard, of about equal costs.

    The tests of a file share bundles, so they stay together. Only a file that costs more than a shard, and is not
    UNCUT, is cut, into as few runs of neighbours as possible. The most expensive part goes first.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        files[file_of(nodeid)].append(nodeid)
    seconds = {name: costs.get(name, DEFAULT_SECONDS) for name in files}
    meant = sum(seconds.values()) / count
    units: list[tuple[float, str, list[str]]] = []
    for name, tests in files.items():
        pieces = 1 if name in UNCUT or not meant else max(1, min(len(tests), math.ceil(seconds[name] / meant)))
        for piece in range(pieces):
            part = tests[piece * len(tests) // pieces : (piece + 1) * len(tests) // pieces]
            units.append((seconds[name] * len(part) / len(tests), part[0], part))
    loads, taken = [0.0] * count, [set[str]() for _ in range(count)]
    for cost, _, part in sorted(units, key=lambda unit: (-unit[0], unit[1])):
        least = loads.index(min(loads))
        loads[least] += cost
        taken[least] |= set(part)
    return taken


def dearest_first(items: Sequence[T], file: Callable[[T], str], costs: Mapping[str, float]) -> list[T]:
    """Sort by files, the slowest first: none of them then begins when the other workers are done."""
    return sorted(items, key=lambda item: (-costs.get(file(item), DEFAULT_SECONDS), file(item)))


def shuffled(items: Sequence[T], file: Callable[[T], str], together: Callable[[T], object], seed: int) -> list[T]:
    """Shuffle files, and the tests in each, but for tests to which `together` gives one value: they share
    what a parameter of their module makes, and it would be made over and over."""
    chance = random.Random(seed)
    files: dict[str, dict[object, list[T]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        files[file(item)][together(item)].append(item)
    result: list[T] = []
    for name in chance.sample(sorted(files), len(files)):
        groups = list(files[name].values())
        for group in chance.sample(groups, len(groups)):
            result += chance.sample(group, len(group))
    return result
