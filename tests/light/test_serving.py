"""A service over toy bundles, step by step: who gets a row when, what waits, what ends."""

import pytest

from speccompile.errors import EngineError, OverloadedError, UsageError
from speccompile.serving.scheduler import Limits, Observer
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.light.fake_bundle import toy_bundle
from tests.light.toy_models import autoregressive

PROMPT = [3, 1, 4, 1, 5]


class Clock:
    """Time that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Counted(Observer):
    """Remembers what it was told."""

    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name in ("calls", "of"):
            return object.__getattribute__(self, name)
        return lambda *values: self.calls.append((name, *values))

    def of(self, name):
        return [values for called, *values in self.calls if called == name]


def scheduler(rows=2, limits=None, clock=None, text=None, **changes):
    bundle = toy_bundle(text, batch_size=rows, **changes)
    return Scheduler(bundle, limits, Counted(), clock or Clock())


def finish(made, *requests):
    """Return what becomes of requests."""
    for _ in range(1000):
        if made.is_idle:
            return [request.generations() for request in requests]
        made.step()
    raise AssertionError("it never ends")


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_more_requests_than_rows_are_served_in_turn(rows):
    made = scheduler(rows)
    prompts = [[number, *PROMPT] for number in range(7)]
    requests = [made.submit(prompt, max_new_tokens=9 + number) for number, prompt in enumerate(prompts)]
    assert (made.waiting, made.running) == (7, 0)
    for number, (generation,) in enumerate(finish(made, *requests)):
        assert generation.token_ids == autoregressive(prompts[number], 9 + number)
        assert generation.finish_reason == "length"
    assert [prompt for prompt, _, _ in made.observer.of("admitted")] == [6] * 7
    assert made.observer.of("queued")[-1] == [0, 0]
    assert sum(tokens for tokens, _ in made.observer.of("stepped")) == 7 * 6 + sum(range(9, 16))


def test_a_row_begins_while_others_decode():
    made = scheduler()
    first = made.submit(PROMPT, max_new_tokens=40)
    for _ in range(3):
        made.step()
    second = made.submit(PROMPT[::-1], max_new_tokens=3)
    before = len(list(iter(first.poll, None)))
    for _ in range(4):
        made.step()
    assert second.generations()[0].token_ids == autoregressive(PROMPT[::-1], 3)
    assert made.running == 1
    assert before
    assert len(list(iter(first.poll, None))) >= 3
    assert finish(made)[:] == []


def test_pieces_are_the_whole(text):
    made = scheduler(text=text)
    request = made.submit("some text", max_new_tokens=30, top_logprobs=2)
    finish(made)
    pieces = list(request)
    (last,) = [piece for piece in pieces if piece.generation is not None]
    whole = last.generation
    assert pieces[-1] is last
    assert whole.text == "".join(piece.text for piece in pieces)
    for name in ("token_ids", "logprobs", "top_logprobs"):
        assert getattr(whole, name) == [value for piece in pieces for value in getattr(piece, name)]
    alone = made.bundle.generate("some text", max_new_tokens=30, top_logprobs=2)
    assert (whole.text, whole.token_ids, whole.top_logprobs) == (alone.text, alone.token_ids, alone.top_logprobs)
    assert list(request) == []


def test_a_cancelled_request_frees_its_row(text):
    made = scheduler(1, text=text)
    first, second, third = (made.submit([number, *PROMPT], max_new_tokens=30) for number in range(3))
    made.step()
    made.step()
    first.cancel()
    third.cancel()
    made.step()
    assert made.running == 1
    (cancelled,) = first.generations()
    assert cancelled.finish_reason == "cancelled"
    assert cancelled.token_ids == autoregressive([0, *PROMPT], 30)[: len(cancelled.token_ids)]
    assert cancelled.text == text.decode([0, *PROMPT, *cancelled.token_ids])[len(text.decode([0, *PROMPT])) :]
    (never,) = third.generations()
    assert (never.token_ids, never.finish_reason, never.first_token_seconds) == ([], "cancelled", None)
    assert finish(made, second)[0][0].token_ids == autoregressive([1, *PROMPT], 30)


def test_a_request_ends_when_its_time_is_over():
    clock = Clock()
    made = scheduler(1, Limits(seconds=10), clock)
    first, second = made.submit(PROMPT, max_new_tokens=100), made.submit(PROMPT, max_new_tokens=100)
    made.step()
    clock.now = 4.0
    made.step()
    clock.now = 11.0
    made.step()
    (begun,), (waited,) = first.generations(), second.generations()
    assert (begun.finish_reason, waited.finish_reason) == ("timeout", "timeout")
    assert begun.token_ids == autoregressive(PROMPT, 100)[: len(begun.token_ids)] != []
    assert (begun.seconds, begun.queue_seconds, begun.first_token_seconds) == (11, 0, 0)
    assert begun.round_seconds == [4.0]
    assert (waited.token_ids, waited.queue_seconds, waited.seconds) == ([], 11, 0)


def test_a_request_that_waits_too_long_for_its_first_row():
    clock = Clock()
    made = scheduler(1, Limits(queue_seconds=5), clock, sampling=True)
    first = made.submit(PROMPT, max_new_tokens=100, temperature=1, num_return_sequences=2)
    second = made.submit(PROMPT, max_new_tokens=1, temperature=1, num_return_sequences=2)
    made.step()
    clock.now = 6.0
    made.step()
    with pytest.raises(OverloadedError, match=r"no row was free within 5 seconds") as caught:
        next(second)
    assert caught.value.retry_after >= 1
    assert list(second) == []
    assert made.observer.of("refused") == [["queue_seconds"]]
    assert len(finish(made, first)[0]) == 2  # of which the second has waited as long, for the first


@pytest.mark.parametrize(
    ("limits", "prompts", "reason", "message"),
    [
        (
            Limits(requests=2),
            [3, 3, 3],
            "requests",
            "2 requests with 6 tokens wait already: expected at most 2 requests",
        ),
        (Limits(tokens=10), [20, 5], "tokens", "1 requests with 20 tokens wait already: expected at most 10 tokens"),
        (Limits(tokens=10), [5, 5, 1], "tokens", "2 requests with 10 tokens wait already"),
    ],
)
def test_what_waits_is_bounded(limits, prompts, reason, message):
    made = scheduler(1, limits)
    taken = [made.submit([9], max_new_tokens=40)]  # which gets the row that is free
    made.step()
    taken += [made.submit([7] * length, max_new_tokens=2) for length in prompts[:-1]]
    with pytest.raises(OverloadedError, match=message) as caught:
        made.submit([7] * prompts[-1])
    assert caught.value.retry_after == 1
    assert made.observer.of("refused") == [[reason]]
    finish(made, *taken)
    made.submit([7] * prompts[-1])


def test_how_long_to_wait_is_what_reading_takes():
    clock = Clock()
    made = scheduler(1, Limits(requests=1), clock)
    made._costs.record_prefill(10, 5.0)
    for _ in range(2):  # of which one has a row at once
        made.submit([7] * 15)
    with pytest.raises(OverloadedError) as caught:
        made.submit(PROMPT)
    assert caught.value.retry_after == 15


def test_rows_of_one_client_are_bounded():
    made = scheduler(3, Limits(client_rows=1))
    greedy = [made.submit(PROMPT, client="greedy", max_new_tokens=50) for _ in range(2)]
    modest = made.submit([9], client="modest", max_new_tokens=50)
    for _ in range(4):
        made.step()
    assert (made.running, made.waiting) == (2, 1)
    assert modest.begun
    assert [request.begun for request in greedy] == [True, False]
    finish(made, *greedy, modest)


def test_lower_numbers_are_served_earlier():
    made = scheduler(1, Limits(scheduling_policy="priority"))
    requests = [made.submit(PROMPT, priority=priority, max_new_tokens=4) for priority in (0, 0, 7, -1, -1)]
    order = []
    for _ in range(400):
        made.step()
        order += [number for number, each in enumerate(requests) if each.begun and number not in order]
    assert order == [3, 4, 0, 1, 2]
    finish(made, *requests)


def test_a_priority_is_refused_where_the_queue_has_none():
    with pytest.raises(UsageError, match="priority: received 2, but this service takes requests in the order"):
        scheduler().submit(PROMPT, priority=2)
    with pytest.raises(UsageError, match=r"Limits.scheduling_policy: received 'fair', expected fcfs or priority"):
        Limits(scheduling_policy="fair")


def test_a_prompt_that_leaves_no_room_needs_no_row():
    made = scheduler(max_length=len(PROMPT))
    ((generation,),) = finish(made, made.submit(PROMPT))
    assert (generation.token_ids, generation.finish_reason) == ([], "capacity")
    assert made.observer.of("admitted") == []


def test_an_engine_that_fails_ends_everything():
    made = scheduler()
    requests = [made.submit(PROMPT, max_new_tokens=50) for _ in range(3)]
    for _ in range(3):
        made.step()
    error = RuntimeError("out of memory")
    made.fail(error)
    for request in requests:
        with pytest.raises(RuntimeError, match="out of memory"):
            list(request)
    assert made.is_idle
    assert made.bundle.generate(PROMPT, max_new_tokens=5).token_ids == autoregressive(PROMPT, 5)
    with pytest.raises(EngineError, match="the service has ended: out of memory") as caught:
        made.submit(PROMPT)
    assert caught.value.hint
    assert len(made.observer.of("failed")) == 3
    assert made.observer.of("refused") == [["failed"]]


def test_what_goes_wrong_with_one_row_ends_its_request_alone(text, monkeypatch):
    made = scheduler(3, text=text, sampling=True)
    bad = made.submit(PROMPT, max_new_tokens=20, temperature=1, seed=1, num_return_sequences=2)
    good = made.submit([9], max_new_tokens=20)
    for _ in range(3):
        made.step()
    row = next(served.row for served in made._slots.running if served.request is bad)
    monkeypatch.setattr(row.stream, "push", lambda tokens: 1 / 0)
    ((generation,),) = finish(made, good)
    assert generation.token_ids == autoregressive([9], 20)
    with pytest.raises(ZeroDivisionError):
        list(bad)
    assert len(made.observer.of("failed")) == 1
    assert len(made.observer.of("ended")) == 2  # the other sequence was cancelled


def test_a_listener_that_is_gone_ends_its_request_alone():
    made = scheduler(1)
    request, other = made.submit(PROMPT, max_new_tokens=50), made.submit(PROMPT, max_new_tokens=5)
    calls = []

    def wake():
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("Event loop is closed")

    request.on_ready(wake)
    ((generation,),) = finish(made, other)
    assert generation.token_ids == autoregressive(PROMPT, 5)
    assert request.generations()[0].finish_reason == "cancelled"


def test_the_sequences_of_one_request_are_bounded():
    made = scheduler(2, Limits(sequences=3), sampling=True)
    with pytest.raises(UsageError, match="num_return_sequences: received 4, expected at most 3") as caught:
        made.submit(PROMPT, temperature=1, num_return_sequences=4)
    assert caught.value.hint


def test_rows_that_are_free_are_no_queue():
    made = scheduler(3, Limits(requests=0, tokens=0))
    requests = [made.submit(PROMPT, max_new_tokens=9) for _ in range(3)]
    with pytest.raises(OverloadedError, match="3 requests with 15 tokens wait already: expected at most 0 requests"):
        made.submit(PROMPT)
    finish(made, *requests)
    assert made.submit(PROMPT)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"requests": -1}, "Limits.requests: received -1, expected 0 or more"),
        ({"sequences": 0}, "Limits.sequences: received 0, expected more than 0"),
        ({"seconds": 0.0}, "Limits.seconds: received 0.0, expected more than 0"),
        ({"client_rows": -2}, "Limits.client_rows: received -2, expected more than 0"),
    ],
)
def test_limits_that_are_none(limits, message):
    with pytest.raises(UsageError, match=message):
        Limits(**limits)


def test_what_was_spent_is_told():
    made = scheduler(sampling=True)
    ((generation,),) = finish(made, made.submit(PROMPT, max_new_tokens=20))
    assert generation.verify_seconds > 0
    assert generation.draft_seconds > 0
    assert len(generation.round_seconds) == generation.rounds == len(generation.path_lengths)


@pytest.mark.parametrize("step", ["start", "hold", "admit"])
def test_a_request_that_was_just_taken_ends_with_the_error_of_the_engine(step, monkeypatch):
    """Fail a request that has left the queue and has no slot yet."""
    made = scheduler(2)
    first = made.submit(PROMPT, max_new_tokens=4)
    if step == "hold":
        monkeypatch.setattr(type(made), "_restored", lambda self, served, place: self._loop.hold(None))

    def fails(*_, **__):
        raise EngineError("the engine is broken", hint="mend it")

    monkeypatch.setattr(made.bundle._loop, step, fails)
    with pytest.raises(EngineError, match="broken") as error:
        made.step()
    made.fail(error.value)
    with pytest.raises(EngineError, match="broken"):
        first.poll()
