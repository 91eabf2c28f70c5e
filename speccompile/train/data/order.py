"""Which texts a step has: every one once in an epoch, texts of like lengths together."""

from functools import lru_cache

import numpy as np

_MOST, _FEWEST = 50, 4
"""Batches that are sorted by length together: this many, or as many as leave so many groups of them. The rule of
transformers' LengthGroupedSampler."""


class BatchOrder:
    """A function of (seed, step, size) alone; the order of an epoch is kept while its steps are asked for."""

    def __init__(self, lengths: np.ndarray) -> None:
        """lengths: of all texts, int64 [n], n > 0."""
        self.lengths = lengths
        self._epoch = lru_cache(maxsize=2)(self._ordered)

    def samples(self, seed: int, step: int, size: int) -> np.ndarray:
        """int64 [size]: the texts of step `step`, from 0 on. The steps take places one after the other, over the ends
        of epochs; an epoch has every text once."""
        count, start = len(self.lengths), step * size
        places = range(start, start + size)
        found = []
        for epoch in range(start // count, (start + size - 1) // count + 1):
            first, last = max(places[0], epoch * count), min(places[-1] + 1, (epoch + 1) * count)
            found.append(self._epoch(seed, epoch, size)[first - epoch * count : last - epoch * count])
        return np.concatenate(found)

    def _ordered(self, seed: int, epoch: int, size: int) -> np.ndarray:
        """int64 [n]. What lies in whole batches is sorted by length in groups, and these batches drawn; the batches
        over the ends of the epoch have what the permutation has there."""
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
