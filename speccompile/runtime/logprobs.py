"""Log-probabilities of chosen tokens."""

from collections.abc import Sequence

import numpy as np

from speccompile.runtime.engine import Array


def chosen_logprobs(logits: Array, tokens: Sequence[int]) -> list[float]:
    """Natural logarithms of the probabilities of `tokens`, the r-th under row r of logits [R, V], at temperature 1."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(1, keepdims=True)
    chosen = shifted[np.arange(len(tokens)), list(tokens)]
    found: list[float] = (chosen - np.log(np.exp(shifted).sum(1))).tolist()
    return found
