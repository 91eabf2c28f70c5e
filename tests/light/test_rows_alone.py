"""One row of a batch, without any graph: how many of a round's tokens it takes, and why it ends."""

from types import SimpleNamespace

import numpy as np
import pytest

from speccompile.runtime.generation import SequenceState, first_difference
from speccompile.runtime.logprobs import Logprobs
from speccompile.runtime.rounds.slots import Slot, group_by_length, slot_range
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer
from speccompile.runtime.timings import GenerationTimes

PROMPT = [7, 8, 9]


def row(
    most: int = 10, capacity: int = 100, ends: tuple[int, ...] = (), prompt: list[int] = PROMPT, **more
) -> SequenceState:
    return SequenceState(prompt, most, capacity, ends, None, **more)


@pytest.mark.parametrize(
    ("most", "capacity", "room", "reason"),
    [(5, 9, 5, "length"), (5, 8, 5, "length"), (5, 7, 4, "capacity"), (1, 4, 1, "length"), (2, 4, 1, "capacity")],
)
def test_a_row_ends_where_it_is_full(most, capacity, room, reason):
    made = row(most, capacity)
    assert (made.is_active, made.max_new_tokens) == (True, room)
    for token in range(room - 1):
        made.append_tokens([token], 0)
        assert made.is_active
    made.append_tokens([50, 51], 1)
    assert (made.token_ids, made.finish_reason) == ([*range(room - 1), 50], reason)
    assert made.all_token_ids == [*PROMPT, *made.token_ids]
    assert len(made) == 3 + room


def test_a_prompt_that_fills_the_caches_leaves_no_room():
    made = row(5, 3)
    assert (made.is_active, made.finish_reason) == (False, "capacity")


@pytest.mark.parametrize("place", range(4))
def test_the_first_token_that_ends_is_the_last(place):
    tokens = [1, 1, 1, 1]
    tokens[place] = 2
    made = row(ends=(2, 3))
    made.append_tokens([*tokens, 3, 2], 5)
    assert (made.token_ids, made.finish_reason) == (tokens[: place + 1], "stop")
    assert (made.path_lengths, made.draft_lengths) == ([6], [5])


def test_forced_tokens_end_it_as_others_do():
    matcher = SimpleNamespace(accept_tokens=len, forced_tokens=lambda most, least: [4, 5, 6, 5], end="")
    made = row(ends=(5,), constraint=SimpleNamespace(matcher=lambda ends: matcher))
    made.min_forced_tokens = 1
    made.append_tokens([1, 2], 1)
    assert (made.token_ids, made.finish_reason) == ([1, 2, 4, 5], "stop")


def test_what_becomes_of_it_is_told():
    made = row(4, logprobs=False)
    made.append_tokens([1], 0)
    made.append_tokens([2, 3], 3)
    made.append_tokens([4, 5], 2)
    told = made.generation(
        GenerationTimes(2.0, 0.5, [0.5, 0.25, 9.0], cached_tokens=1), mode="m", engine="e", exact=True, kernels=None
    )
    assert (told.token_ids, told.prompt_tokens, told.rounds) == ([1, 2, 3, 4], 3, 2)
    assert (told.mean_accepted, told.tokens_per_second) == (1.5, 2.0)
    assert (told.path_lengths, told.draft_lengths, told.round_seconds) == ([2, 2], [3, 2], [0.5, 0.25])
    assert told.logprobs is told.top_logprobs is told.seed is told.text is told.estimated_speedup is None


def test_what_ends_behind_the_room_ends_nothing():
    made = row(2, ends=(5,))
    made.append_tokens([1, 2, 5], 2)
    assert (made.token_ids, made.finish_reason) == ([1, 2], "length")
    made = row(2, ends=(5,))
    made.append_tokens([1, 5, 4], 2)
    assert (made.token_ids, made.finish_reason) == ([1, 5], "stop")


def test_logprobs_are_of_the_tokens_that_are_kept():
    made = row(3, ends=(5,), logprobs=True, top_logprobs=1)
    made.append_tokens([1], 0, Logprobs([-0.5], [[(1, -0.5)]]))
    made.append_tokens([5, 2, 3], 2, Logprobs([-1.0, -2.0, -3.0], [[(5, -1.0)], [(2, -2.0)], [(3, -3.0)]]))
    assert (made.token_ids, made.logprobs) == ([1, 5], [-0.5, -1.0])
    assert made.top_logprobs == [[(1, -0.5)], [(5, -1.0)]]


@pytest.mark.parametrize(
    ("stop", "shown", "kept"), [("cd", "ab", 4), ("e", "abcd", 5), ("a", "", 1), ("x", "abcdef", 6)]
)
def test_a_text_ends_before_what_stops_it(text, stop, shown, kept):
    ids = text.encode("abcdef", special_tokens=False)
    made = SequenceState(PROMPT, 6, 100, (), IncrementalDetokenizer(text, PROMPT, stop))
    made.append_tokens(ids[:1], 0)
    if made.is_active:
        made.append_tokens(ids[1:], 4)
    assert ("".join(made.pieces), made.token_ids) == (shown, ids[:kept])
    assert made.finish_reason == ("length" if stop == "x" else "stop")


def test_a_row_keeps_what_was_asked_for_alone():
    assert row().logprobs is row().top_logprobs is row().matcher is row().error is None
    assert (row(logprobs=True).logprobs, row(logprobs=True).top_logprobs) == ([], None)
    assert (row(top_logprobs=2).logprobs, row(top_logprobs=2).top_logprobs) == ([], [])
    assert not row().decodes_every_round


def test_where_two_lists_part():
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1, 2], [2, 2]) == 0
    assert first_difference([1, 2], [1, 2, 3]) == first_difference([1, 2, 3], [1, 2]) == 2


def taken(index: int, length: int = 3) -> Slot:
    slot = Slot(index)
    slot.admit(row(prompt=list(range(length))), 0, 0, speculative=True, fixed=False)
    return slot


def test_a_slot_keeps_what_is_committed_of_the_text():
    slot = taken(0)
    slot.is_prefilled, slot.committed_length, slot.drafter_length = True, 3, 3
    slot.sequence.append_tokens([5, 6], 1)
    assert slot.decodes
    assert slot.has_forced_tokens  # one token more than the pending one
    slot.committed_length = 4
    assert not slot.has_forced_tokens
    slot.committed_length = slot.drafter_length = 9  # of a round whose last tokens the row did not keep
    held = slot.release()
    assert (held.tokens, held.drafter_length) == ([0, 1, 2, 5, 6], 5)
    assert (slot.committed_length, slot.drafter_length, slot.decodes) == (5, 5, False)
    slot = taken(1)
    slot.committed_length, slot.drafter_length = 2, 1
    assert slot.release() == ([0, 1], 1)


def test_a_slot_that_is_admitted_again_begins_behind_what_it_holds():
    slot = taken(0)
    slot.is_prefilled = slot.has_drafts = slot.lags_by_host_rounds = slot.is_tracked = True
    slot.release()
    slot.admit(row(), 2, 1, speculative=False, fixed=True)
    assert (slot.committed_length, slot.prefill_position, slot.drafter_length) == (2, 2, 1)
    assert (slot.speculative, slot.fixed_draft_length) == (False, True)
    assert not any((slot.is_prefilled, slot.has_drafts, slot.lags_by_host_rounds, slot.is_tracked, slot.decodes))


def test_neighbours_of_one_length_read_together():
    slots = [taken(0, 4), taken(1, 4), taken(2, 5), taken(4, 5), taken(5, 5)]
    assert [[slot.index for slot in group] for group in group_by_length(slots)] == [[0, 1], [2], [4, 5]]
    assert group_by_length([]) == []
    assert slot_range(slots[1:4]) == range(1, 5)
    assert slot_range(slots[2:3]) == range(2, 3)
    assert np.array_equal(slot_range([slots[4], slots[0]]), range(6))
