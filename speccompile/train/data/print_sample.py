"""Readable text of a sample, for a check before the training."""

from itertools import groupby
from typing import Any

import numpy as np

from speccompile.train.data.corpus import Dataset

BEGIN, END = "⟦", "⟧"
_AROUND = 200
"""Number of tokens shown before the first token of the loss mask, and from it on."""


def print_sample(corpus: Dataset, tokenizer: Any, number: int = 0, named: int = 0) -> str:
    """Return a decoded sample with special tokens, its loss mask marked by ⟦ and ⟧; of a long sample, the text around
    the beginning of the loss mask. tokenizer: None shows token ids. named: numbers before its tokens."""
    text = corpus.sample(number)
    begin = max(int(np.argmax(text.learnt)) - _AROUND, named)
    end = min(begin + 2 * _AROUND, len(text.tokens))
    shown = "".join(
        f"{BEGIN}{words}{END}" if learnt else words
        for learnt, words in _runs(text.tokens, text.learnt, begin, end, tokenizer)
    )
    return (
        f"text {number} of {len(corpus)}, {len(text.tokens)} tokens, of which {int(text.learnt.sum())} are learnt, "
        f"between {BEGIN} and {END}:\n{'..' if begin > named else ''}{shown}{'..' if end < len(text.tokens) else ''}"
    )


def _runs(tokens: np.ndarray, learnt: np.ndarray, begin: int, end: int, tokenizer: Any) -> list[tuple[bool, str]]:
    """Return (is in the loss mask, text) of consecutive spans."""
    found = []
    for is_learnt, places in groupby(range(begin, end), key=lambda place: bool(learnt[place])):
        ids = [int(tokens[place]) for place in places]
        words = " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=False)
        found.append((is_learnt, words))
    return found
