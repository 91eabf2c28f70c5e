"""Texts for the corrector of scripts/examples: random words, some of them wrong forms."""

import torch

from scripts.examples.corrector import END, FIRST, VOCABULARY, WRONG


def make_sources(count: int, length: int, share: float, seed: int) -> list[list[int]]:
    """Return texts in which this share of the words has a wrong form, each with its end."""
    random = torch.Generator().manual_seed(seed)
    texts = torch.randint(FIRST, WRONG, (count, length), generator=random)
    wrong = torch.randint(WRONG, len(VOCABULARY), (count, length), generator=random)
    is_wrong = torch.rand(count, length, generator=random) < share
    return [[*row, END] for row in torch.where(is_wrong, wrong, texts).tolist()]
