"""Cases for recurrent states (convolutions, recurrences) and for elementwise operators."""

from collections.abc import Iterator

import numpy as np
from case import Case
from inputs import EXTREMES, RANDOM, WINDOWS, Array, Floats, Runs, extreme, normal, runs_of

SHAPES = ((2, 2, 20, 24), (1, 3, 16, 70), (3, 1, 128, 128), (1, 5, 1, 1))
"""Sizes of recurrences: groups, heads of a group, widths of keys and of values."""


def number_cases() -> Iterator[Case]:
    """Yield cases of elementwise operators, and of After, which only orders its inputs."""
    for name in ("Softplus", "Log"):

        def x(rows: int) -> Floats:
            return np.abs(normal(rows, 50)) * 9

        yield Case(f"{name} of 50", ("x",), ("y",), {}, runs_of({"x": x}, "x"), {})
    read = {f"{count}": {"count": np.array(count), "read": normal(2, 3)} for count in (0, 7)}
    yield Case("After any", ("count", "read"), ("y",), {}, read, {}, {"y": np.int64})


def convolution_cases() -> Iterator[Case]:
    for depth, channels in ((4, 70), (1, 16), (3, 5)):
        state = normal(2, 1, depth - 1, channels)
        constants = {"taps": normal(depth, channels), "bias": normal(channels)}

        def rows(count: int, channels: int = channels) -> Floats:
            return normal(2, 1, count, channels)

        runs = {run: feeds | {"state": state} for run, feeds in runs_of({"rows": rows}, "rows").items()}
        for silu in (0, 1):
            label = f"Convolve {depth} by {channels}" + ", silu" * silu
            yield Case(label, ("rows", "state", *constants), ("y",), constants, runs, {"silu": silu})
        moved: Runs = {}
        for count in WINDOWS if depth > 1 else ():
            ends = {"length": np.array([9, 0]), "count": np.array([count, count // 2])}
            moved[f"{count} rows"] = {"rows": rows(count), "state": state} | ends
        if moved:
            yield Case(f"Shift {depth} by {channels}", tuple(moved["1 rows"]), ("updated",), {}, moved, {})


def recurrence_cases() -> Iterator[Case]:
    for shape in SHAPES:
        for delta in (False, True):
            for wide in (False, True):
                label = " by ".join(map(str, shape)) + ", a decay for each key" * wide
                runs = _recurrences(*shape, delta=delta, wide=wide)
                for name, left_out, output in (("Recur", "count", "context"), ("Advance", "query", "updated")):
                    own = {run: {n: a for n, a in feeds.items() if n != left_out} for run, feeds in runs.items()}
                    inputs = tuple(own["1 rows"])
                    yield Case(f"{name}{'Delta' * delta} {label}", inputs, (output,), {}, own, {})


def _recurrences(groups: int, shared: int, key: int, value: int, *, delta: bool, wide: bool) -> Runs:
    heads, runs = groups * shared, Runs()
    state = normal(2, heads, key, value)
    for count in WINDOWS:
        rows: dict[str, Array] = {
            "query": normal(2, groups, count, key),
            "key": normal(2, groups, count, key) / np.float32(key**0.5),
            "value": normal(2, heads, count, value),
            "decay": -np.abs(normal(2, heads, count, key if wide else 1)),
        }
        rows |= {"beta": RANDOM.random((2, heads, count, 1)).astype(np.float32)} if delta else {}
        ends = {"state": state, "length": np.array([5, 0]), "count": np.array([count // 2, count])}
        runs[f"{count} rows"] = rows | ends
        for first in range(0, len(EXTREMES), 2 * heads * count):
            runs[f"{count} extreme rows from {first}"] = rows | {"value": extreme(rows["value"], first)} | ends
    return runs
