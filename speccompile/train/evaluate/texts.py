"""What is read of the held-out part: texts, side by side, and prompts for rounds. The same in every evaluation."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.nn.utils.rnn import pad_sequence

from speccompile.errors import UsageError
from speccompile.train.evaluate.depths import Texts


class Sample(Protocol):
    """tokens int32 [T]; learnt bool [T]: those of answers, or all. Of torch or numpy."""

    @property
    def tokens(self) -> Any: ...

    @property
    def learnt(self) -> Any: ...


class Samples(Protocol):
    """The held-out part of a corpus."""

    def __len__(self) -> int: ...

    def sample(self, i: int) -> Sample: ...


def batches(samples: Samples, count: int, size: int, part: int = 0, parts: int = 1) -> Iterator[Texts]:
    """`count` texts, or all where there are fewer, from the whole of the held-out part, `size` side by side and those
    of like lengths together. part: of the process, which reads every parts-th batch."""
    chosen = [samples.sample(number) for number in _spread(len(samples), count)]
    chosen.sort(key=lambda sample: len(sample.tokens))  # stable, and so the same everywhere
    for start in range(part * size, len(chosen), parts * size):
        group = chosen[start : start + size]
        rows = [torch.tensor(sample.tokens.tolist()) for sample in group]
        tokens = pad_sequence(rows, batch_first=True)
        learnt = pad_sequence([torch.tensor(sample.learnt.tolist()) for sample in group], batch_first=True)
        real = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        yield tokens, real, learnt


def prompts_of(samples: Samples, count: int, longest: int) -> list[list[int]]:
    """`count` prompts, or as many as there are: of each text what stands before its first answer; of one that is learnt
    from its beginning, the first half. longest: of a prompt, in tokens; of longer ones the last that fit.

    Raises UsageError where no text has any.
    """
    found = [_prompt(samples.sample(number)) for number in _spread(len(samples), count)]
    prompts = [prompt[-longest:] for prompt in found if prompt]
    if not prompts:
        raise UsageError(
            f"received {len(samples)} held-out texts, none of which has a prompt, expected one or more to judge the "
            "drafter on",
            hint="give more data, or a larger share to hold out",
        )
    return prompts


def _prompt(sample: Sample) -> list[int]:
    tokens: Sequence[int] = sample.tokens.tolist()
    learnt: Sequence[bool] = sample.learnt.tolist()
    first = next((place for place, is_learnt in enumerate(learnt) if is_learnt), len(tokens))
    return list(tokens[: first if first > 1 else len(tokens) // 2])  # a first token may be a mark that is not learnt


def _spread(total: int, count: int) -> list[int]:
    """So many numbers below `total`, evenly."""
    count = min(total, count)
    return [number * total // count for number in range(count)]
