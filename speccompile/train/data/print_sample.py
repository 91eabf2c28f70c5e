"""One text as people read it, before anything is learnt from it."""

from itertools import groupby
from typing import Any

import numpy as np

from speccompile.train.data.corpus import Dataset

BEGIN, END = "⟦", "⟧"
_AROUND = 200
"""Tokens that are shown before the first learnt one, and from there on."""


def print_sample(corpus: Dataset, tokenizer: Any, number: int = 0) -> str:
    """A text decoded, special tokens and all, with what is learnt between ⟦ and ⟧; long ones from the part on where
    learning begins. tokenizer: None where the target has none, then the ids are shown."""
    text = corpus.sample(number)
    begin = max(int(np.argmax(text.learnt)) - _AROUND, 0)
    end = min(begin + 2 * _AROUND, len(text.tokens))
    shown = "".join(
        f"{BEGIN}{words}{END}" if learnt else words
        for learnt, words in _runs(text.tokens, text.learnt, begin, end, tokenizer)
    )
    return (
        f"text {number} of {len(corpus)}, {len(text.tokens)} tokens, of which {int(text.learnt.sum())} are learnt, "
        f"between {BEGIN} and {END}:\n{'..' if begin else ''}{shown}{'..' if end < len(text.tokens) else ''}"
    )


def _runs(tokens: np.ndarray, learnt: np.ndarray, begin: int, end: int, tokenizer: Any) -> list[tuple[bool, str]]:
    """What is learnt and what is not, in turns."""
    found = []
    for is_learnt, places in groupby(range(begin, end), key=lambda place: bool(learnt[place])):
        ids = [int(tokens[place]) for place in places]
        words = " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=False)
        found.append((is_learnt, words))
    return found
