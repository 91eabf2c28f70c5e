"""Log-probabilities of chosen tokens, and of the best ones."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from speccompile.runtime.devices.engine import Array


class Logprobs(NamedTuple):
    """Log-probabilities of a round. chosen: of every token. best: the most probable tokens at each position with
    theirs, the best first, the lower token first of two that are equal; empty lists unless requested."""

    chosen: list[float]
    best: list[list[tuple[int, float]]]


def find_logprobs(logits: Array, tokens: Sequence[int], n_best: int = 0) -> Logprobs:
    """Return the natural logarithms of the probabilities of `tokens`, the r-th under row r of logits [R, V], at
    temperature 1, and of the `n_best` best tokens of each row."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(1, keepdims=True)
    totals = np.log(np.exp(shifted).sum(1))
    chosen = shifted[np.arange(len(tokens)), list(tokens)] - totals
    best = [_best(line, total, n_best) for line, total in zip(shifted, totals.tolist(), strict=True)]
    return Logprobs(chosen.tolist(), best)


def _best(line: Array, total: float, count: int) -> list[tuple[int, float]]:
    """Return the best tokens of one row [V] and their log-probabilities; `total` is subtracted from its logits."""
    if not count:
        return []
    least = np.partition(line, -count)[-count]
    (places,) = np.nonzero(line >= least)  # more than `count` if some are equal
    order = places[np.argsort(-line[places], kind="stable")][:count]
    return [(int(token), float(line[token]) - total) for token in order]
