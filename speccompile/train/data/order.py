"""Order of samples: each one once per epoch, samples of similar lengths in one batch."""

from functools import lru_cache

import numpy as np

_MOST, _FEWEST = 50, 4
"""Sorting by length happens in groups of at most `_MOST` batches, and in at least `_FEWEST` groups: the rule of
transformers' LengthGroupedSampler."""


class BatchOrder:
    """Order of samples, a function of (seed, step, size). The orders of the last two epochs are cached."""

    def __init__(self, lengths: np.ndarray) -> None:
        """lengths: lengths of all samples, int64 [n], n > 0."""
        self.lengths = lengths
        self._epoch = lru_cache(maxsize=2)(self._ordered)

    def samples(self, seed: int, step: int, size: int) -> np.ndarray:
        """Return the samples of step `step` (from 0 on), int64 [size]. Steps take consecutive positions, across the
        ends of epochs; an epoch has every sample once."""
        count, start = len(self.lengths), step * size
        places = range(start, start + size)
        found = []
        for epoch in range(start // count, (start + size - 1) // count + 1):
            first, last = max(places[0], epoch * count), min(places[-1] + 1, (epoch + 1) * count)
            found.append(self._epoch(seed, epoch, size)[first - epoch * count : last - epoch * count])
        return np.concatenate(found)

    def _ordered(self, seed: int, epoch: int, size: int) -> np.ndarray:
        """Return the order of an epoch, int64 [n]. Complete batches are sorted by length in groups and then shuffled;
        batches across the ends of the epoch keep the random permutation."""
        count = len(self.lengths)
        random = np.random.default_rng((seed, epoch))
        order = random.permutation(count)
        head = -epoch * count % size
        batches = max(count - head, 0) // size
        if batches < 2:
            return order
        whole = order[head : head + batches * size]
        group = size * max(1, min(batches // _FEWEST, _MOST))
        parts = [whole[start : start + group] for start in range(0, len(whole), group)]
        whole = np.concatenate([part[np.argsort(self.lengths[part], kind="stable")] for part in parts])
        drawn = whole.reshape(batches, size)[random.permutation(batches)].reshape(-1)
        return np.concatenate([order[:head], drawn, order[head + len(drawn) :]])
