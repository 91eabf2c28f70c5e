"""Texts that are learnt from or held out, and batches of them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speccompile.errors import UsageError
from speccompile.train.data.order import BatchOrder
from speccompile.train.data.shards import SampleTable


@dataclass(frozen=True)
class Sample:
    """tokens int32 [T]; learnt bool [T]: tokens that are to be guessed; document: equal for texts of the same one."""

    tokens: np.ndarray
    learnt: np.ndarray
    document: str


@dataclass(frozen=True)
class Batch:
    """tokens int64 [B, T], padded behind with 0; real bool [B, T]: no padding; learnt bool [B, T]. samples: the numbers
    of its texts in their corpus."""

    tokens: Tensor
    attention_mask: Tensor
    loss_mask: Tensor
    samples: tuple[int, ...]


class Dataset:
    """A part of the texts of a table. Nothing of it changes: what it gives is a function of what is asked."""

    def __init__(self, texts: SampleTable, rows: np.ndarray, key: str) -> None:
        """rows: int64 [n], those of the table that are in it. key: of what all this depends on; a resumed training has
        the same data when it has the same key."""
        self.texts, self.rows, self.key = texts, rows, key
        self.lengths = texts.lengths[rows]
        self._order = BatchOrder(self.lengths)

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, number: int) -> Sample:
        """Raises IndexError for a number that is no text's."""
        row = int(self.rows[number])
        return Sample(self.texts.tokens(row), self.texts.learnt(row), f"{self.texts.documents[row]:016x}")

    def batch(self, seed: int, step: int, size: int, part: int = 0, parts: int = 1) -> Batch:
        """Step `step` has `size` texts, of which this is the part `part`. The parts one below the other are the whole
        batch: all are as long as its longest text. Raises UsageError where a part would have no text."""
        if size < parts:
            raise UsageError(
                f"received batches of {size} texts in {parts} parts, expected a text or more in each",
                hint="make train.schedule.batch_size larger, accumulate less, or start fewer processes",
            )
        samples = self._order.samples(seed, step, size)
        longest = int(self.lengths[samples].max())
        return self.gather(np.array_split(samples, parts)[part], longest)

    def gather(self, samples: np.ndarray, longest: int | None = None) -> Batch:
        """The texts of these numbers, each `longest` tokens long, or as long as the longest of them."""
        lengths = torch.from_numpy(self.lengths[samples])
        shape = len(samples), longest or int(lengths.max())
        real = torch.arange(shape[1])[None, :] < lengths[:, None]
        tokens, learnt = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
        for index, number in enumerate(samples):
            text, length = self.sample(int(number)), int(lengths[index])
            tokens[index, :length] = torch.from_numpy(text.tokens.astype(np.int64))
            learnt[index, :length] = torch.from_numpy(text.learnt.copy())
        return Batch(tokens, real, learnt, tuple(int(each) for each in samples))
