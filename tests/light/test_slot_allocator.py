"""Batch slots without a bundle: the slot of a sequence, its reused prefix, the queue, and the cost of reading."""

from types import SimpleNamespace
from typing import Any

import pytest

from speccompile.runtime.generation import SequenceState
from speccompile.serving.scheduler.latency import ROUNDS, SMALLEST, LatencyEstimates
from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.preemption import Victims
from speccompile.serving.scheduler.request import Request
from speccompile.serving.scheduler.scheduled import ScheduledSequence
from speccompile.serving.scheduler.slot_allocator import SlotAllocator, SlotAssignment, common_prefix_length
from speccompile.serving.scheduler.waiting_queue import WaitingQueue


def sequence(
    *prompt: int, request: Request | None = None, index: int = 0, salt: str = "", reuse: bool = True
) -> ScheduledSequence:
    row = SequenceState(prompt, 50, 100, (), None)
    return ScheduledSequence(request or Request(1), index, row, True, True, "", salt, reuse, 0.0)


def ended(slots: SlotAllocator, slot: int, *text: int, **more: object) -> None:
    """Return a slot that another sequence has left, and its content."""
    served = sequence(1, **more)  # type: ignore[arg-type]
    slots.assign(slot, served)
    slots.release(served, text)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([], [], 0),
        ([1], [], 0),
        ([1], [2], 0),
        ([1, 2], [1, 3], 1),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3, 4], [1, 2, 9, 4], 2),
    ],
)
def test_how_much_two_texts_have_in_common(one, other, expected):
    assert common_prefix_length(one, other) == common_prefix_length(other, one) == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ((5, 6, 7, 8), 3),
        ((5, 6, 7), 2),
        ((5, 6, 7, 9), 3),
        ((5, 6, 9, 9), 2),
        ((9,), 0),
        ((5,), 0),
        ((5, 6, 7, 8, 9), 4),
    ],
)
def test_what_a_free_row_holds_is_found_but_the_last_token(prompt, expected):
    slots = SlotAllocator(1)
    ended(slots, 0, 5, 6, 7, 8)
    assert slots.choose(sequence(*prompt)) == SlotAssignment(0, expected)


@pytest.mark.parametrize("salt", ["", "a"])
@pytest.mark.parametrize("other", ["", "a"])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_who_shares_with_whom(salt, other, shares, wants, runs):
    """Texts of one salt, of those who share: of a row that is free, and of one that runs."""
    slots = SlotAllocator(2)
    first = sequence(5, 6, 7, 8, salt=salt, reuse=shares)
    slots.assign(0, first)
    if not runs:
        slots.release(first, [5, 6, 7])
    held = slots.cached_prefix_length(0, sequence(5, 6, 7, 8, 9, salt=other, reuse=wants))
    assert held == (3 if salt == other and shares and wants else 0)


def test_the_sequences_of_one_request_share_whatever_they_want_of_others():
    slots, request = SlotAllocator(2), Request(2)
    slots.assign(0, sequence(5, 6, 7, request=request, salt="a", reuse=False))
    assert slots.cached_prefix_length(0, sequence(5, 6, 7, request=request, index=1, salt="a", reuse=False)) == 2
    assert slots.cached_prefix_length(0, sequence(5, 6, 7, salt="a", reuse=False)) == 0


def test_a_running_text_s_last_token_is_in_no_cache():
    slots = SlotAllocator(2)
    first = sequence(5, 6)
    slots.assign(0, first)
    first.row.append_tokens([7, 8], 1)
    assert slots.cached_prefix_length(0, sequence(5, 6, 7, 8, 9)) == 3


def test_what_carries_states_holds_nothing_for_others():
    slots = SlotAllocator(1, lambda slot, tokens: 0)
    ended(slots, 0, 5, 6, 7)
    assert slots.choose(sequence(5, 6, 7, 8)) == SlotAssignment(0, 0)


def test_the_row_that_was_not_used_for_longest_makes_room():
    slots = SlotAllocator(3)
    for slot in (1, 0, 2):
        ended(slots, slot, 10 + slot)
    assert slots.choose(sequence(50, 51)).slot == 1
    ended(slots, 1, 60)
    assert slots.choose(sequence(50, 51)).slot == 0


def test_the_row_that_holds_most_is_taken_before_the_one_that_waits_longest():
    slots = SlotAllocator(3)
    ended(slots, 0, 9)
    ended(slots, 1, 5, 6)
    ended(slots, 2, 5, 6, 7)
    assert slots.choose(sequence(5, 6, 7, 8)) == SlotAssignment(2, 3)
    prompt = (5, *range(100, 119))
    assert slots.choose(sequence(*prompt)).slot == 0  # one token of twenty is not worth another sequence's slot


def test_a_prompt_that_a_running_row_holds_is_copied():
    slots = SlotAllocator(2)
    slots.assign(0, sequence(5, 6, 7, 8))
    ended(slots, 1, 5)
    assert slots.choose(sequence(5, 6, 7, 9)) == SlotAssignment(1, 3, 0)


def test_rows_that_run_lie_together():
    slots = SlotAllocator(4)
    slots.assign(2, sequence(1, 2))
    ended(slots, 0, 5, 6, 7)
    assert slots.choose(sequence(5, 6, 7, 8)).slot in (1, 3)


def test_rows_are_counted():
    slots = SlotAllocator(2)
    assert (len(slots), slots.is_full, slots.running) == (2, False, [])
    one, two = sequence(1), sequence(2)
    slots.assign(1, one)
    assert (slots.is_full, slots.running, one.slot) == (False, [one], 1)
    slots.assign(0, two)
    assert (slots.is_full, slots.running) == (True, [two, one])


def line(*requests: tuple[int, int], **limits: int) -> WaitingQueue:
    """Return a queue of requests: tokens of each prompt, and its number of sequences."""
    waiting = WaitingQueue(Limits(**limits))
    for tokens, count in requests:
        request = Request(count)
        waiting.add([sequence(*range(1, 1 + tokens), request=request, index=index) for index in range(count)])
    return waiting


def test_a_prompt_counts_once_whatever_number_of_sequences_it_has():
    waiting = line((3, 4), (5, 1))
    assert (waiting.requests, waiting.tokens, bool(waiting)) == (2, 8, True)
    assert not line()


@pytest.mark.parametrize(
    ("waits", "free", "expected"), [(1, 0, ""), (2, 0, "requests"), (3, 0, "requests"), (2, 1, ""), (3, 1, "requests")]
)
def test_so_many_requests_may_wait(waits, free, expected):
    assert line(*[(1, 1)] * waits, requests=2).exceeded_limit(1, free) == expected


@pytest.mark.parametrize(
    ("waits", "tokens", "free", "expected"),
    [((), 99, 0, ""), ((6,), 4, 0, ""), ((6,), 5, 0, "tokens"), ((6,), 5, 1, ""), ((6, 6), 4, 1, ""),
     ((6, 6), 5, 1, "tokens"), ((2, 3), 5, 0, ""), ((2, 3), 6, 0, "tokens")],
)  # fmt: skip
def test_so_many_tokens_may_wait_and_one_request_alone(waits, tokens, free, expected):
    assert line(*[(each, 1) for each in waits], tokens=10).exceeded_limit(tokens, free) == expected


def test_a_sequence_that_was_preempted_counts_on_its_own():
    waiting, (head, other) = WaitingQueue(Limits()), (sequence(1, 2, 3), sequence(1, 2, 3, index=1))
    waiting.add([head, other])
    assert (waiting.requests, waiting.tokens) == (1, 3)
    other.start_time = 1.0
    assert (waiting.requests, waiting.tokens) == (2, 6)


def runs(client: str, priority: int, arrival: float) -> ScheduledSequence:
    row = SequenceState([1], 50, 100, (), None)
    return ScheduledSequence(Request(1), 0, row, False, True, client, "", True, arrival, priority)


@pytest.mark.parametrize(
    ("first", "client_rows", "reading", "expected"),
    [
        (("x", 0, 9.0), 3, None, 2),
        (("x", 1, 9.0), 3, None, 2),
        (("x", 2, 0.0), 3, None, None),
        (("x", 0, 9.0), 3, 0, 0),
        (("x", 0, 9.0), 3, 3, None),
        (("a", 0, 9.0), 1, None, 0),
        (("c", 0, 9.0), 1, None, None),
    ],
    ids=str,
)
def test_who_loses_its_slot(first, client_rows, reading, expected):
    """Take the last of those with the lowest priority; for a client that has all its slots one of its own; while a
    prompt is read its sequence alone."""
    running = [runs("a", 1, 2.0), runs("b", 2, 0.0), runs("b", 2, 1.0), runs("c", 0, 3.0)]
    bundle: Any = SimpleNamespace(_loop=SimpleNamespace(drafting=None))
    reads = None if reading is None else running[reading]
    found = Victims(bundle, running, reads, client_rows).of(runs(*first))
    assert found is (None if expected is None else running[expected])


def test_first_come_first_served():
    waiting = line((1, 1), (2, 1), (3, 1))
    taken = waiting.pop(lambda served: len(served.row.prompt) > 1)
    assert taken is not None
    assert len(taken.row.prompt) == 2
    assert waiting.pop(lambda served: False) is None
    assert [len(served.row.prompt) for served in waiting.pop_expired(lambda served: len(served.row.prompt) != 2)] == [
        1,
        3,
    ]
    assert not waiting


def test_a_chunk_takes_as_long_as_some_rounds():
    costs = LatencyEstimates()
    assert costs.chunk(1, 1) is None
    costs.record_round(1.0)
    assert costs.chunk(1, 1) is None  # nothing has been read
    costs.record_prefill(100, 10.0)
    assert costs.prefill_seconds(50) == pytest.approx(5.0)
    affordable = ROUNDS / 0.1
    assert costs.chunk(4, 4) == 1 << (int(affordable + 1e-9).bit_length() - 1)
    assert costs.chunk(4, 4) <= affordable + 1e-9 < 2 * costs.chunk(4, 4)
    assert costs.chunk(1, 0) is None  # nobody waits for a round
    slow = LatencyEstimates()
    slow.record_prefill(1, 10.0)
    assert slow.chunk(1, 1) is None  # nothing has been decoded
    slow.record_round(0.1)
    assert slow.chunk(1, 1) == SMALLEST


def test_a_chunk_is_longer_the_more_wait_for_it_and_shorter_the_more_decode():
    costs = LatencyEstimates()
    costs.record_round(1.0)
    costs.record_prefill(100, 10.0)
    assert ROUNDS == 3  # of all sequences those that wait for prompts get their share of 60 tokens
    found = [costs.chunk(waiting, decoding) for waiting, decoding in ((1, 15), (4, 12), (5, 5), (15, 1), (1000, 1))]
    assert found == [8, 8, 16, 32, 32]


def test_prompts_follow_each_other_until_half_of_a_chunk_is_taken():
    costs = LatencyEstimates()
    assert costs.chunk(2, 2, 5) is None
    costs.record_round(1.0)
    costs.record_prefill(100, 10.0)
    assert ROUNDS == 3  # so 30 tokens take as long as three rounds
    assert [costs.chunk(2, 2, taken) for taken in (8, 14, 15, 16, 100)] == [16, 16, 8, 0, 0]


def test_few_tokens_cost_as_much_as_a_small_chunk():
    """Do not let prompts whose beginning is cached make other prompts look dear."""
    costs = LatencyEstimates()
    for tokens in (1, 1, SMALLEST):
        costs.record_prefill(tokens, 0.4)
        assert costs.prefill_seconds(SMALLEST) == pytest.approx(0.4)


def test_a_row_is_copied_where_that_is_faster_than_reading():
    costs = LatencyEstimates()
    costs.record_prefill(10, 10.0)
    costs.record_copy(3.0)
    assert [costs.pays_to_copy(tokens) for tokens in (1, 2, 3, 4)] == [False, False, True, True]
    costs.record_copy(13.0)  # ninety parts of what was, and ten of the newest
    assert [costs.pays_to_copy(tokens) for tokens in (3, 4)] == [False, True]
