"""Log-probabilities of chosen tokens, and of the best ones."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from speccompile.runtime.devices.engine import Array


class Logprobs(NamedTuple):
    """chosen: of every token of a round. best: at the place of each, the most probable tokens and theirs, the best
    first, the lower token first of two that are equal; empty lists where they were not asked for."""

    chosen: list[float]
    best: list[list[tuple[int, float]]]


def find_logprobs(logits: Array, tokens: Sequence[int], n_best: int = 0) -> Logprobs:
    """Natural logarithms of the probabilities of `tokens`, the r-th under row r of logits [R, V], at temperature 1, and
    of the n best of each row."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(1, keepdims=True)
    totals = np.log(np.exp(shifted).sum(1))
    chosen = shifted[np.arange(len(tokens)), list(tokens)] - totals
    best = [_best(line, total, n_best) for line, total in zip(shifted, totals.tolist(), strict=True)]
    return Logprobs(chosen.tolist(), best)


def _best(line: Array, total: float, count: int) -> list[tuple[int, float]]:
    """Of one row [V], to which the logarithm of all is added."""
    if not count:
        return []
    least = np.partition(line, -count)[-count]
    (places,) = np.nonzero(line >= least)  # more than so many where some are equal
    order = places[np.argsort(-line[places], kind="stable")][:count]
    return [(int(token), float(line[token]) - total) for token in order]
