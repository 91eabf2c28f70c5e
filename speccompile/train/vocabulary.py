"""A drafter's own vocabulary: those of the target's tokens that its texts have most often."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from speccompile.errors import RecipeError


def count_learnt(texts: Iterable[tuple[np.ndarray, np.ndarray]], size: int) -> Tensor:
    """How often each of the target's tokens is learnt: int64 [size]. texts: tokens int [T] and learnt bool [T] each."""
    counts = np.zeros(size, np.int64)
    for tokens, learnt in texts:
        counts += np.bincount(tokens[learnt], minlength=size)
    return torch.from_numpy(counts)


def select_tokens(counts: Tensor, size: int, special: Sequence[int] = ()) -> Tensor:
    """The `size` tokens with the highest counts, int64 [V]: int64 [size], ascending.

    Of equal counts the lowest ids are kept, so that where too few tokens occur the rest is filled with the lowest of
    the others. special: tokens that are kept wherever they occur, such as those that end a text: without them a drafter
    runs past its end. Raises RecipeError for a size that leaves no choice.
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


def maps(kept: Tensor, target_size: int) -> dict[str, Tensor]:
    """The tensors that heads publish: `d2t` int64 [Vd], the target's token of each draft token minus that draft token;
    `t2d` bool [V], which of the target's tokens there are (EAGLE-3, SafeAILab/EAGLE)."""
    has = torch.zeros(target_size, dtype=torch.bool)
    has[kept] = True
    return {"d2t": kept - torch.arange(len(kept)), "t2d": has}


def coverage(counts: Tensor, kept: Tensor) -> float:
    """Share of the learnt tokens that the kept ones are, from 0 to 1: no draft can be right beyond it."""
    return float(counts[kept].sum() / counts.sum().clamp(min=1))
