"""Suffix matching against suffix-gpu, which nobody here wrote: the same drafts where the policies are the same.

They differ in three things. It copies nothing beyond the text's end, where ours goes round: no occurrence lies so near
to the end here. It has the earliest occurrences, ours the best: there are never too many. Of tokens with equal votes it
drafts the smallest: texts in which that happens are left out.
"""

import random
from collections import Counter

import pytest
import torch
from suffix_gpu.local_matcher import LocalMatchKernel

from speccompile.compiler.step.draft.votes import SuffixPolicy
from tests.compile.suffix_drafters import drafts, read, suffix_chain

pytestmark = pytest.mark.sweep("compares with a package on many texts")

TOKENS, MATCH, SYMBOLS = 6, 8, 7
ROWS = 160
FILLER = list(range(40, 40 + TOKENS))
"""Between the history and the end of a text: nothing but the history is copied."""


def make_text(seed: int) -> list[int]:
    """Return a phrase that comes again, whole or without its beginning, before three endings; the last time without
    any."""
    source = random.Random(seed)
    phrase = source.sample(range(SYMBOLS), 5)
    endings = [[*source.sample(range(10, 16), 3), *source.choices(range(16, 20), k=4)] for _ in range(3)]
    endings[1][:2] = endings[0][:2]  # they part later
    chosen = source.choices(endings, [5, 3, 1], k=source.randint(3, 11))
    history = [token for ending in chosen for token in [*phrase[source.choice([0, 0, 1, 3]) :], *ending]]
    return history + FILLER + phrase[source.randint(0, 1) :]


def has_ties(text: list[int]) -> bool:
    """Return whether two tokens have equal votes anywhere on the way of any suffix's drafts."""
    for matched in range(1, MATCH + 1):
        suffix = text[len(text) - matched :]
        live = [i for i in range(matched, len(text)) if text[i - matched : i] == suffix]
        for ahead in range(TOKENS):
            votes = Counter(text[i + ahead] for i in live).most_common(2)
            if len(votes) == 2 and votes[0][1] == votes[1][1]:
                return True
            live = [i for i in live if text[i + ahead] == votes[0][0]]
    return False


TEXTS = [text for text in map(make_text, range(400)) if not has_ties(text)]


@pytest.mark.parametrize(
    ("factor", "offset", "threshold"),
    [(0.0, 99.0, 0.0), (1.0, 0.0, 0.1), (1.0, 1.0, 0.0), (2.0, 0.0, 0.3), (0.5, 0.0, 0.2)],
)
def test_the_drafts_are_those_of_suffix_gpu(factor: float, offset: float, threshold: float) -> None:
    peer = LocalMatchKernel(
        TOKENS, MATCH, max_occurrences=32, min_token_prob=threshold, max_spec_factor=factor, max_spec_offset=offset,
        support_thresholds=(1, 2, 4, 8, 16, 32),
    )  # fmt: skip
    drafter = suffix_chain(TOKENS, SuffixPolicy(MATCH, factor, offset, threshold), rows=ROWS)
    seen = set[tuple[int, ...]]()
    for text in TEXTS:
        buffer = torch.zeros((1, ROWS), dtype=torch.int32)
        buffer[0, : len(text)] = torch.tensor(text)
        tokens, count, *_ = peer(torch.tensor([len(text)]), buffer, torch.tensor([True]))
        expected = tokens[0, : int(count[0])].tolist()
        assert drafts(read(drafter, text)) == expected, text
        seen.add(tuple(expected))
    assert len(TEXTS) >= 50
    assert len(seen) >= 20
