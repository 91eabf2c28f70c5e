"""Draft vocabulary: the most frequent of the target's tokens in the training samples."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from speccompile.errors import RecipeError


def count_learnt(texts: Iterable[tuple[np.ndarray, np.ndarray]], size: int) -> Tensor:
    """Count each of the target's tokens in the loss mask: int64 [size]. texts: tokens int [T], loss mask bool [T]."""
    counts = np.zeros(size, np.int64)
    for tokens, learnt in texts:
        counts += np.bincount(tokens[learnt], minlength=size)
    return torch.from_numpy(counts)


def select_tokens(counts: Tensor, size: int, special: Sequence[int] = ()) -> Tensor:
    """Return the `size` tokens with the highest counts, int64 [V], as int64 [size], ascending.

    Of equal counts the lowest ids win; hence, if too few tokens occur, the lowest unused ids fill the rest. special:
    tokens that are included whenever they occur, such as end tokens: without them a drafter runs past the end of a
    text. Raise RecipeError for a size out of range.
    """
    occur = [token for token in dict.fromkeys(special) if counts[token] > 0]
    if not max(1, len(occur)) <= size <= len(counts):
        raise RecipeError(
            f"train.vocabulary: received {size} tokens, expected from {max(1, len(occur))}, the special ones "
            f"that the texts have, to {len(counts)}, the target's",
            hint="leave train.vocabulary out for the target's whole vocabulary",
        )
    ranks = counts.clone()
    ranks[occur] = counts.max() + 1
    return ranks.argsort(descending=True, stable=True)[:size].sort().values


def coverage(counts: Tensor, kept: Tensor) -> float:
    """Return the share of loss-mask tokens that the vocabulary covers, from 0 to 1: an upper bound of acceptance."""
    return float(counts[kept].sum() / counts.sum().clamp(min=1))
