"""Pearson's chi-square test (Pearson 1900), in plain Python and numpy."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALLEST = 5.0
"""Minimum expected count of a cell, for the statistic to be distributed as chi-square (Cochran 1954)."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table. index: in the input; None for the pool of small cells."""

    index: int | None
    observed: float
    expected: float

    @property
    def deviation(self) -> float:
        """Return its term of the statistic."""
        return (self.observed - self.expected) ** 2 / self.expected


@dataclass(frozen=True)
class ChiSquare:
    """Result of the test. worst: the cell that deviates most."""

    statistic: float
    degrees: int
    p_value: float
    worst: Cell


def chi_square(observed: Floats, expected: Floats) -> ChiSquare:
    """Test counts [cells] against expected ones [cells] of the same sum, which is above zero.

    Cells with an expected count below 5 are pooled; a pool that is still smaller takes the next cell in. With one
    remaining cell nothing can be tested: no degrees of freedom, and a p-value of 1.
    """
    order = np.argsort(-expected, kind="stable")
    kept = int((expected >= SMALLEST).sum())
    if kept and expected[order[kept:]].sum() < SMALLEST and (expected + observed)[order[kept:]].any():
        kept -= 1
    large, small = order[:kept], order[kept:]
    cells = [Cell(int(cell), float(observed[cell]), float(expected[cell])) for cell in large]
    if expected[small].any():
        cells.append(Cell(None, float(observed[small].sum()), float(expected[small].sum())))
    degrees = len(cells) - 1
    statistic = math.fsum(cell.deviation for cell in cells) if degrees else 0.0
    return ChiSquare(statistic, degrees, survival(statistic, degrees), max(cells, key=lambda cell: cell.deviation))


def survival(statistic: float, degrees: int) -> float:
    """Return the probability that chi-square with `degrees` degrees of freedom is at least the statistic.

    Closed forms for whole degrees (Abramowitz and Stegun, 26.4.4 and 26.4.5), with y half the statistic: for even ones
    exp(-y) times the sum of y^i / i!, i below degrees / 2; for odd ones erfc(sqrt(y)) and exp(-y) times the sum of y^(i
    - 1/2) / Gamma(i + 1/2), i from 1. Each term is computed from its logarithm, so that none overflows.
    """
    y = statistic / 2
    if degrees == 0 or y <= 0:
        return 1.0
    half = degrees % 2 / 2
    powers = [i + half for i in range(degrees // 2)]
    terms = [math.exp(power * math.log(y) - math.lgamma(power + 1) - y) for power in powers]
    return min(1.0, math.fsum([math.erfc(math.sqrt(y)) if half else 0.0, *terms]))
