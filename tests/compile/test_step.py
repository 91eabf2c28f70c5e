"""Acceptance and the drafters in eager torch, against plain Python."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from speccompile.step.draft.prompt_lookup import PromptLookup
from speccompile.step.verify.accept import accept_greedy


def accept_in_python(window: list[int], n_given: int, n_total: int, target: list[int]) -> tuple[int, int]:
    """The greedy criterion, one token after the other."""
    if n_given == 0:
        return 0, -1
    path = n_given
    while path < n_total and window[path] == target[path - n_given]:
        path += 1
    return path, target[path - n_given]


@st.composite
def rounds(draw: st.DrawFn) -> list[tuple[list[int], int, int, list[int]]]:
    width = draw(st.integers(1, 7))
    drafts = draw(st.integers(0, width - 1))
    tokens = st.integers(0, 2)
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        n_given = draw(st.integers(0, width - drafts))
        n_total = n_given + (draw(st.integers(0, drafts)) if n_given else 0)
        window = draw(st.lists(tokens, min_size=width, max_size=width))
        rows.append((window, n_given, n_total, draw(st.lists(tokens, min_size=drafts + 1, max_size=drafts + 1))))
    return rows


@given(rounds())
def test_greedy_acceptance_is_the_longest_agreeing_prefix(rows):
    columns = [torch.tensor(column) for column in zip(*rows, strict=True)]
    n_path, bonus = accept_greedy(*columns)
    for row, (window, n_given, n_total, target) in enumerate(rows):
        expected = accept_in_python(window, n_given, n_total, target)
        assert n_path[row] == expected[0]
        if n_given:
            assert bonus[row, 0] == expected[1]


def lookup_in_python(text: list[int], ngram: int, n_drafts: int) -> list[int] | None:
    """The longest match of the text's end, the latest of equals; the copy repeats the period at the text's end."""
    last = len(text) - 1
    for size in range(min(ngram, last), 0, -1):
        for end in range(last - 1, size - 2, -1):
            if text[end - size + 1 : end + 1] == text[last - size + 1 :]:
                copied = list(text)
                for _ in range(n_drafts):
                    copied.append(copied[len(copied) - (last - end)])
                return copied[last + 1 :]
    return None


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=24),
    ngram=st.integers(1, 5),
    n_drafts=st.integers(1, 6),
    chunk=st.integers(1, 9),
)
def test_prompt_lookup_copies_what_followed_the_longest_match(text, ngram, n_drafts, chunk):
    drafter = PromptLookup(n_drafts, ngram, 1, 40)
    states = [torch.full((1, 40), 99)]
    for start in range(0, max(1, len(text) - 1), chunk):  # the path's last token is the bonus
        path = text[start : min(start + chunk, len(text) - 1) + 1]
        window, n_total, states = drafter(
            torch.tensor([path]), torch.tensor([len(path) - 1]), torch.tensor([start]), torch.arange(1), states
        )
    expected = lookup_in_python(text, ngram, n_drafts)
    assert window[0, 0] == text[-1]
    assert n_total[0] == (1 if expected is None else 1 + n_drafts)
    if expected is not None:
        assert window[0, 1:].tolist() == expected
