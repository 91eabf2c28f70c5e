"""Held-out data of an evaluation: batches of samples, and prompts for rounds; equal in every evaluation."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.nn.utils.rnn import pad_sequence

from speccompile.errors import UsageError
from speccompile.train.evaluate.depths import Texts


class Sample(Protocol):
    """Sample of torch or numpy. tokens int32 [T]; learnt bool [T]: the loss mask."""

    @property
    def tokens(self) -> Any: ...

    @property
    def learnt(self) -> Any: ...


class Samples(Protocol):
    """Held-out part of a dataset."""

    def __len__(self) -> int: ...

    def sample(self, i: int) -> Sample: ...


def batches(samples: Samples, count: int, size: int, part: int = 0, parts: int = 1) -> Iterator[Texts]:
    """Yield batches of `size` samples of similar lengths, from at most `count` samples spread over the held-out part.
    part: index of this process, which reads every parts-th batch."""
    chosen = [samples.sample(number) for number in _spread(len(samples), count)]
    chosen.sort(key=lambda sample: len(sample.tokens))  # stable, so equal in all processes
    for start in range(part * size, len(chosen), parts * size):
        group = chosen[start : start + size]
        rows = [torch.tensor(sample.tokens.tolist()) for sample in group]
        tokens = pad_sequence(rows, batch_first=True)
        learnt = pad_sequence([torch.tensor(sample.learnt.tolist()) for sample in group], batch_first=True)
        real = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        yield tokens, real, learnt


def prompts_of(samples: Samples, count: int, longest: int) -> list[list[int]]:
    """Return at most `count` prompts: the text before the first response; the first half of a sample whose loss mask
    begins at its start. longest: maximum tokens of a prompt; longer prompts keep their last tokens.

    Raise UsageError if no sample has a prompt.
    """
    found = [_prompt(samples.sample(number)) for number in _spread(len(samples), count)]
    prompts = [prompt[-longest:] for prompt in found if prompt]
    if not prompts:
        raise UsageError(
            f"received {len(samples)} held-out texts, none of which has a prompt, expected one or more to evaluate the "
            "drafter on",
            hint="give more data, or a larger share to hold out",
        )
    return prompts


def _prompt(sample: Sample) -> list[int]:
    tokens: Sequence[int] = sample.tokens.tolist()
    learnt: Sequence[bool] = sample.learnt.tolist()
    first = next((place for place, is_learnt in enumerate(learnt) if is_learnt), len(tokens))
    return list(tokens[: first if first > 1 else len(tokens) // 2])  # token 0 may be a special token


def _spread(total: int, count: int) -> list[int]:
    """Return at most `count` evenly spread numbers below `total`."""
    count = min(total, count)
    return [number * total // count for number in range(count)]
