"""Datasets for training or evaluation, and batches of their samples."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speccompile.errors import UsageError
from speccompile.train.data.order import BatchOrder
from speccompile.train.data.shards import SampleTable


@dataclass(frozen=True)
class Sample:
    """Sample. tokens int32 [T]; learnt bool [T]: the loss mask; document: name, equal for samples of one document."""

    tokens: np.ndarray
    learnt: np.ndarray
    document: str


@dataclass(frozen=True)
class Batch:
    """Batch of samples. tokens int64 [B, T], padded on the right with 0; attention_mask bool [B, T]: False for padding;
    loss_mask bool [B, T]. samples: numbers of its samples in the dataset."""

    tokens: Tensor
    attention_mask: Tensor
    loss_mask: Tensor
    samples: tuple[int, ...]


class Dataset:
    """Dataset: some samples of a table. It has no mutable state; its results depend on the arguments only."""

    def __init__(self, texts: SampleTable, rows: np.ndarray, key: str) -> None:
        """rows: int64 [n], rows of the table that belong to the dataset. key: digest of all inputs; equal keys mean
        equal data, also for a resumed training."""
        self.texts, self.rows, self.key = texts, rows, key
        self.lengths = texts.lengths[rows]
        self._order = BatchOrder(self.lengths)

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, number: int) -> Sample:
        """Return a sample. Raise IndexError for a number out of range."""
        row = int(self.rows[number])
        return Sample(self.texts.tokens(row), self.texts.learnt(row), f"{self.texts.documents[row]:016x}")

    def batch(self, seed: int, step: int, size: int, part: int = 0, parts: int = 1) -> Batch:
        """Return part `part` of the `size` samples of step `step`. All parts are padded to the batch's longest sample,
        so that their concatenation is the batch. Raise UsageError if a part would be empty."""
        if size < parts:
            raise UsageError(
                f"received batches of {size} texts in {parts} parts, expected a text or more in each",
                hint="make train.schedule.batch_size larger, accumulate less, or start fewer processes",
            )
        samples = self._order.samples(seed, step, size)
        longest = int(self.lengths[samples].max())
        return self.gather(np.array_split(samples, parts)[part], longest)

    def gather(self, samples: np.ndarray, longest: int | None = None) -> Batch:
        """Return a batch of these samples, padded to `longest` tokens, or to the longest of them."""
        lengths = torch.from_numpy(self.lengths[samples])
        shape = len(samples), longest or int(lengths.max())
        real = torch.arange(shape[1])[None, :] < lengths[:, None]
        tokens, learnt = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
        for index, number in enumerate(samples):
            text, length = self.sample(int(number)), int(lengths[index])
            tokens[index, :length] = torch.from_numpy(text.tokens.astype(np.int64))
            learnt[index, :length] = torch.from_numpy(text.learnt.copy())
        return Batch(tokens, real, learnt, tuple(int(each) for each in samples))
