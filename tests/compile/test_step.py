"""Acceptance along a chain in eager torch, against plain Python."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from speccompile.compiler.step.verify import Acceptance, RoundInputs
from speccompile.compiler.step.verify.rules import Exact
from speccompile.compiler.step.window import ChainLayout


def accept_in_python(window: list[int], n_given: int, n_total: int, target: list[int]) -> tuple[int, int]:
    """Return the greedy criterion, one token after the other."""
    path = n_given
    while path < n_total and window[path] == target[path - n_given]:
        path += 1
    return path - n_given, target[path - n_given]


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
    window, n_given, n_total, target = (torch.tensor(column) for column in zip(*rows, strict=True))
    case = RoundInputs(window, n_given, n_total, torch.zeros_like(n_given), torch.arange(target.shape[1]))
    walk, bonus = Acceptance(Exact())(case, one_hot(target, 3).float(), None, ChainLayout(), None)
    for row, (tokens, given_tokens, total, choices) in enumerate(rows):
        if given_tokens:
            assert (walk.n_accepted[row], bonus[row, 0]) == accept_in_python(tokens, given_tokens, total, choices)
