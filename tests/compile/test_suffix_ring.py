"""The ring of earlier answers in eager torch: what it holds, what is found there, and that nothing in it is trusted."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.compiler.prove.plain_drafts import SlotRound
from speccompile.compiler.step.draft import Accepted, Drafted
from speccompile.compiler.step.draft.votes import SuffixPolicy
from speccompile.drafters.suffix.drafter import Suffix
from speccompile.drafters.suffix.reference import Lane, Votes
from speccompile.plan.plan import SuffixPlan
from tests.compile.suffix_drafters import VOCABULARY, drafts, suffix_chain, suffix_tree

TOKENS = 3
PROMPT, ANSWER = list(range(20, 30)), list(range(1, 16))


def run(
    drafter: Suffix, states: list[torch.Tensor], rows: list[tuple[int, list[int]]], slots: torch.Tensor | None = None
) -> Drafted:
    """Make a run that has committed tokens from a length on in every row, each list with the bonus token behind it."""
    width = max(len(tokens) for _, tokens in rows)
    path = torch.tensor([tokens + [0] * (width - len(tokens)) for _, tokens in rows])
    counts = torch.tensor([max(len(tokens) - 1, 0) for _, tokens in rows])
    with torch.no_grad():
        lengths = torch.tensor([length for length, _ in rows])
        return drafter(Accepted(path, counts, lengths, batch_rows=slots), states)


def generate(
    drafter: Suffix, states: list[torch.Tensor], prompt: list[int], answer: list[int], steps: list[int] | None = None
) -> list[torch.Tensor]:
    """Return a prompt in one run, then its answer in rounds of some sizes, as long as it goes."""
    states = run(drafter, states, [(0, [*prompt, answer[0]])]).states
    at, step = 0, 0
    while at + (size := (steps or [2])[step % len(steps or [2])]) < len(answer):
        states = run(drafter, states, [(len(prompt) + at, answer[at : at + size + 1])]).states
        at, step = at + size, step + 1
    return states


def zeros(drafter: Suffix) -> list[torch.Tensor]:
    return [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]


def written(states: list[torch.Tensor], row: int = 0) -> list[list[int]]:
    """Return the tokens in a lane, apart where it has them apart."""
    found: list[list[int]] = [[]]
    for value in states[1][row].tolist():
        found[-1].append(value - 1) if value else found.append([])
    return [each for each in found if each]


def test_answers_are_kept_apart_and_prompts_are_not() -> None:
    drafter = suffix_chain(TOKENS, lane=64)
    states = generate(drafter, zeros(drafter), PROMPT, ANSWER)
    states = generate(drafter, states, PROMPT[::-1], ANSWER[::-1], [1, 3, 4])
    assert written(states) == [ANSWER[:14], ANSWER[::-1][:12]]


def test_an_earlier_answer_is_drafted() -> None:
    drafter = suffix_chain(TOKENS, lane=64)
    states = generate(drafter, zeros(drafter), PROMPT, ANSWER)
    states = run(drafter, states, [(0, [30, 31, 32, 33, 34, 35])]).states
    found = run(drafter, states, [(5, [35, 6, 7])])
    assert drafts(found) == [8, 9, 10]
    without = suffix_chain(TOKENS)
    assert drafts(run(without, zeros(without), [(0, [30, 31, 32, 33, 34, 35, 6, 7])])) == []


def test_the_text_itself_wins_ties() -> None:
    drafter = suffix_chain(TOKENS, lane=64)
    states = generate(drafter, zeros(drafter), PROMPT, ANSWER)
    found = run(drafter, states, [(0, [6, 7, 40, 41, 42, 43, 44, 6, 7])])
    assert drafts(found) == [40, 41, 42]


def test_votes_in_the_ring_win_where_they_are_surer() -> None:
    drafter = suffix_chain(TOKENS, lane=64)
    states = generate(drafter, zeros(drafter), PROMPT, ANSWER)
    found = run(drafter, states, [(0, [7, 40, 41, 42, 7, 43, 44, 45, 30, 7])])
    assert drafts(found) == [8, 9, 10]


def test_a_drafter_that_catches_up_keeps_the_answer_whole() -> None:
    """Rounds without drafts are read later, all at once, in a window as wide as a prompt's."""
    drafter = suffix_chain(TOKENS, lane=64)
    states = run(drafter, zeros(drafter), [(0, [*PROMPT, ANSWER[0]])]).states
    states = run(drafter, states, [(10, ANSWER[:3])]).states
    states = run(drafter, states, [(12, ANSWER[2:13])]).states
    assert written(states) == [ANSWER[:12]]


@pytest.mark.parametrize("gap", [1, 7])
def test_no_match_runs_across_what_was_missed(gap: int) -> None:
    drafter = suffix_chain(TOKENS, lane=64)
    states = run(drafter, zeros(drafter), [(0, [*PROMPT, ANSWER[0]])]).states
    states = run(drafter, states, [(10, ANSWER[:3])]).states
    states = run(drafter, states, [(12 + gap, ANSWER[2 + gap : 5 + gap])]).states
    assert written(states) == [ANSWER[:2], ANSWER[2 + gap : 4 + gap]]


def test_rows_write_lanes_of_their_own_and_read_all_of_them() -> None:
    drafter = suffix_chain(TOKENS, batch=2, lane=64)
    states = run(drafter, zeros(drafter), [(0, [*PROMPT, 1]), (0, [*PROMPT, 11])]).states
    for at in range(0, 8, 2):
        rows = [(10 + at, list(range(first + at, first + at + 3))) for first in (1, 11)]
        states = run(drafter, states, rows).states
    assert [written(states, row) for row in range(2)] == [[list(range(1, 9))], [list(range(11, 19))]]
    found = run(drafter, states, [(0, [40, 41, 42, 43, 44, 13, 14]), (0, [40, 41, 42, 43, 44, 3, 4])])
    assert [drafts(found, row) for row in range(2)] == [[15, 16, 17], [5, 6, 7]]


def test_idle_rows_write_nothing() -> None:
    drafter = suffix_chain(TOKENS, lane=64)
    states = generate(drafter, zeros(drafter), PROMPT, ANSWER)
    idle = run(drafter, states, [(0, [5])])
    assert all(torch.equal(a, b) for a, b in zip(idle.states[1:], states[1:], strict=True))
    assert idle.n_total.tolist() == [1]


@settings(max_examples=10)
@given(lengths=st.lists(st.integers(5, 30), min_size=1, max_size=12), steps=st.lists(st.integers(1, 4), min_size=1))
def test_the_latest_answers_are_kept_whatever_their_lengths(lengths: list[int], steps: list[int]) -> None:
    """Keep the last 20 tokens in a lane of 40, side by side as they were in the answers."""
    drafter = suffix_chain(TOKENS, lane=40)
    states, committed = zeros(drafter), list[int]()
    for number, length in enumerate(lengths):
        answer = [100 * number + index for index in range(length)]  # no two tokens are the same
        states = generate(drafter, states, PROMPT, answer, steps)
        committed += answer[: int(states[2][0, 1]) - len(PROMPT)]
    pieces = written(states)
    assert set(committed[-20:]) <= {token for piece in pieces for token in piece}
    assert all(b == a + 1 for piece in pieces for a, b in pairwise(piece))


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), again=st.booleans())
def test_whatever_the_ring_holds_the_drafts_are_tokens(seed: int, again: bool) -> None:
    """Draft from a ring of another text, of another vocabulary, and of invalid numbers."""
    drafter = suffix_chain(TOKENS, lane=40, again=again)
    random = torch.Generator().manual_seed(seed)
    states = [torch.randint(-3, 2 * VOCABULARY, state.shape, generator=random) for state in drafter.states()]
    states[2] = torch.randint(-(2**40), 2**40, (1, 3), generator=random)
    for length in (0, 6):
        text = torch.randint(0, VOCABULARY, (6 if length else 7,), generator=random).tolist()
        found = run(drafter, states, [(length, text)])
        states = found.states
        assert ((found.window >= 0) & (found.window < VOCABULARY)).all()
        assert 1 <= found.n_total[0] <= TOKENS + 1


tokens = st.lists(st.integers(0, 5), min_size=2, max_size=9)


@settings(max_examples=60)
@given(
    shape=st.sampled_from(["chain", "again", "tree"]),
    rounds=st.lists(st.lists(st.tuples(tokens, st.booleans()), min_size=2, max_size=2), max_size=8),
    threshold=st.sampled_from([0.0, 0.3]),
)
def test_rounds_of_two_slots_are_those_of_the_reference(shape: str, rounds: Any, threshold: float) -> None:
    """Read texts and answers of any widths, which end and go on at any time, in lanes that are soon full."""
    policy, again = SuffixPolicy(4, 1.0, 2.0, threshold, 2 if shape == "tree" else 1), shape == "again"
    if shape == "tree":
        drafter = suffix_tree(5, 3, policy, batch=2, lane=10)
    else:
        drafter = suffix_chain(TOKENS, policy, batch=2, lane=10, again=again)
    size = drafter.states()[1].shape[1]
    votes = Votes(
        SuffixPlan(4, 1.0, 2.0, again, 1), threshold, policy.top_k, 3, drafter.tokens, shape != "tree",
        [Lane(10, [None] * size) for _ in range(2)],
    )  # fmt: skip
    texts, states = [[0], [0]], zeros(drafter)
    for each in rounds:
        rows, read, width = list[tuple[int, list[int]]](), list[SlotRound](), max(len(path) for path, _ in each)
        for slot, (path, begins) in enumerate(each):
            texts[slot] = [path[0]] if begins else texts[slot]
            start = len(texts[slot]) - 1
            texts[slot] += path[1:]
            rows.append((start, texts[slot][start:]))
            read.append(SlotRound(list(texts[slot]), start, width - 1))
        found, expected = run(drafter, states, rows, torch.arange(2)), votes(read)
        states = found.states
        for slot in range(2):
            assert drafts(found, slot) == expected[slot].tokens
            if found.parents is not None:
                count = int(found.n_total[slot])
                assert found.parents[slot, 1:count].tolist() == expected[slot].parents


def test_a_tree_has_nodes_of_the_ring_too() -> None:
    drafter = suffix_tree(6, 3, SuffixPolicy(8, 0.0, 99.0, 0.0, top_k=2), lane=64)
    states = generate(drafter, zeros(drafter), PROMPT, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    states = generate(drafter, states, PROMPT, [1, 2, 3, 4, 10, 11, 12, 13, 14])
    found = run(drafter, states, [(0, [30, 31, 32, 33, 34, 35, 36, 37, 3, 4])])
    assert drafts(found) == [10, 5, 11, 6, 12, 7]
    assert found.parents[0].tolist() == [-1, 0, 0, 1, 2, 3, 4]
