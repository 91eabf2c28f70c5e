"""What goes into the kernels: windows of normal numbers, and of extreme ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOWS = (1, 2, 3, 4, 5, 7, 17, 64)
"""Rows of a window: on every path a product computes groups of each size that it has code for, and full tiles."""

Array = NDArray[Any]
Floats = NDArray[np.float32]
Runs = dict[str, dict[str, Array]]
Maker = Callable[[int], Array]
"""Rows of an input, of a window."""

RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> Floats:
    return RANDOM.standard_normal(shape).astype(np.float32)


def _with(*values: float) -> Callable[[Floats], Floats]:
    """Replace some of the numbers by these."""

    def make(row: Floats) -> Floats:
        made = row.copy()
        made[RANDOM.choice(len(row), min(len(values), len(row)), replace=False)] = values[: len(row)]
        return made

    return make


def _times(factor: float) -> Callable[[Floats], Floats]:
    def make(row: Floats) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            return (row * np.float64(factor)).astype(np.float32)

    return make


def _halves(row: Floats) -> Floats:
    """Return numbers halfway between two in eight bits, also in every block of 32."""
    made: Floats = np.clip(np.floor(row * 40), -126, 125) + np.float32(0.5)
    made[::16] = 127
    return made


def _edges() -> Floats:
    """Return numbers where e^x goes another way: its ends, and what lies halfway between two multiples of ln 2, as
    float32 has it."""
    halves = np.arange(-125, 128, dtype=np.float32) + np.float32(0.5)
    nearest = halves * np.float32(np.log(2))
    near = np.stack([np.nextafter(nearest, np.float32(side)) for side in (-np.inf, np.inf)] + [nearest])
    ends = np.array([87, 88, 88.722839, 89], np.float32)
    return np.concatenate([near[near * np.float32(np.log2(np.e)) == halves], ends, -ends])


EDGES = _edges()

EXTREMES: dict[str, Callable[[Floats], Floats]] = {
    "an infinity": _with(np.inf),
    "no number": _with(np.nan),
    "both infinities": _with(np.inf, -np.inf),
    "infinities": lambda row: np.copysign(np.float32(np.inf), row),
    "subnormal": _times(1e-39),
    "below what counts": _times(1e-31),
    "zeros": lambda row: np.copysign(np.float32(0), row),
    "1e30": _times(1e30),
    "one 1e30": _with(1e30),
    "1e30 and its opposite": _with(1e30, -1e30),
    "overflowing": lambda row: np.copysign(np.finfo(np.float32).max, row),
    "large": _times(60.0),
    "halves": _halves,
    "edges": lambda row: RANDOM.choice(EDGES, len(row)),
}
"""What becomes of a row of normal numbers."""


def extreme(rows: Floats, first: int = 0) -> Floats:
    """Return rows [.., width], each of the next kind."""
    kinds = list(EXTREMES.values())
    flat = rows.reshape(-1, rows.shape[-1])
    made = [kinds[(first + index) % len(kinds)](row) for index, row in enumerate(flat)]
    return np.stack(made).reshape(rows.shape)


def runs_of(makers: dict[str, Maker], hard: str) -> Runs:
    """Return every window with normal numbers, and with extreme rows of the input `hard`: in a window of one, all
    kinds."""
    runs = {}
    for rows in WINDOWS:
        runs[f"{rows} rows"] = plain = {name: make(rows) for name, make in makers.items()}
        for first in range(0, len(EXTREMES), rows):
            runs[f"{rows} extreme rows from {first}"] = plain | {hard: extreme(plain[hard], first)}
    return runs
