"""Prompts of several chunks that come while others are read or decode, limits at the very second, and the end of a
service: step by step."""

import pytest

from speccompile.errors import OverloadedError
from speccompile.serving.scheduler import Limits
from tests.light.fake_bundle import toy_bundle
from tests.light.test_serving import Clock, finish, scheduler
from tests.light.toy_models import autoregressive

LONG = [list(range(number, number + 37 + number)) for number in (1, 40, 90)]
"""Of more than two chunks."""


def test_one_prompt_is_read_after_the_other():
    made = scheduler(3)
    requests = [made.submit(prompt, max_new_tokens=6) for prompt in LONG]
    running = []
    for _ in range(2):
        made.step()
        running.append(made.running)
    finish(made)
    assert running == [1, 1]  # the others wait until the first has been read
    for prompt, request in zip(LONG, requests, strict=True):
        assert request.generations()[0].token_ids == autoregressive(prompt, 6)


class Ticks(Clock):
    """Goes on whenever it is asked: a round takes as long as a chunk."""

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize(("length", "together"), [(6, 4), (14, 3), (20, 0)])
def test_short_prompts_are_read_between_two_rounds_until_half_of_a_chunk_is_taken(length: int, together: int):
    made = scheduler(7, clock=Ticks(), prefill_chunk=16)
    requests = [made.submit([7] * 32, max_new_tokens=40)]
    for _ in range(4):
        made.step()
    prompts = [[number] * length for number in range(5)]
    requests += [made.submit(prompt, max_new_tokens=9) for prompt in prompts]
    assert made._costs.chunk(5, 1) == 64  # a token is a sixteenth of a round, of which five may pass: 80
    made.step()
    assert len(made.observer.of("first_token")) == 1 + together
    for prompt, (generation,) in zip(prompts, finish(made, *requests)[1:], strict=True):
        assert generation.token_ids == autoregressive(prompt, 9)


@pytest.mark.parametrize("behind", [0, 1, 4])
def test_a_long_prompt_is_read_beside_rows_that_decode(behind):
    made = scheduler(2)
    first = made.submit([3, 1, 4], max_new_tokens=30)
    for _ in range(1 + behind):
        made.step()
    second = made.submit(LONG[1], max_new_tokens=9)
    found = finish(made, first, second)
    assert [each.token_ids for (each,) in found] == [autoregressive([3, 1, 4], 30), autoregressive(LONG[1], 9)]


def test_a_prompt_that_is_cancelled_while_it_is_read_leaves_what_was_read():
    made = scheduler(1)
    first = made.submit(LONG[0], max_new_tokens=6)
    made.step()
    first.cancel()
    second = made.submit(LONG[0], max_new_tokens=6)
    ((cancelled,), (whole,)) = finish(made, first, second)
    assert (cancelled.finish_reason, cancelled.token_ids) == ("cancelled", [])
    assert whole.token_ids == autoregressive(LONG[0], 6)
    assert 0 < whole.cached_tokens < len(LONG[0])


@pytest.mark.parametrize(("now", "reason"), [(9.9, ""), (10.0, ""), (10.1, "timeout")])
def test_a_request_may_take_so_long(now, reason):
    clock = Clock()
    made = scheduler(1, Limits(seconds=10), clock)
    request = made.submit([1, 2], max_new_tokens=100)
    made.step()
    clock.now = now
    made.step()
    assert made.running == (0 if reason else 1)
    made.cancel_all()
    assert finish(made, request)[0][0].finish_reason == (reason or "cancelled")


@pytest.mark.parametrize(("now", "is_late"), [(4.9, False), (5.0, False), (5.1, True)])
def test_a_request_may_wait_so_long(now, is_late):
    clock = Clock()
    made = scheduler(1, Limits(queue_seconds=5), clock)
    made.submit([1, 2], max_new_tokens=100)
    made.step()
    waits = made.submit([3], max_new_tokens=2)
    clock.now = now
    made.step()
    assert made.waiting == (0 if is_late else 1)
    if is_late:
        with pytest.raises(OverloadedError):
            next(waits)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_so_many_rows_of_one_client(rows):
    made = scheduler(3, Limits(client_rows=rows))
    for number in range(4):
        made.submit([number, 1], client="one", max_new_tokens=50)
    for _ in range(8):
        made.step()
    assert made.running == rows
    made.submit([9], client="other", max_new_tokens=50)
    for _ in range(2):
        made.step()
    assert made.running == min(3, rows + 1)


@pytest.mark.parametrize("count", [1, 4, 5])
def test_so_many_sequences(count):
    from speccompile.errors import UsageError

    made = scheduler(2, Limits(sequences=4), sampling=True)
    options = {"num_return_sequences": count, "temperature": 1.0, "seed": 1, "max_new_tokens": 2}
    if count > 4:
        with pytest.raises(UsageError, match="num_return_sequences: received 5, expected at most 4"):
            made.submit([1], **options)
    else:
        assert len(finish(made, made.submit([1], **options))[0]) == count


def test_a_service_that_is_left_finishes_what_is_there_but_not_when_it_is_left_by_an_error():
    with toy_bundle(batch_size=1).serve() as service:
        request = service.submit([3, 1], max_new_tokens=40)
    assert request.generations()[0].token_ids == autoregressive([3, 1], 40)
    with pytest.raises(OverloadedError, match="takes no more requests"):
        service.submit([1], max_new_tokens=1)
    failed = toy_bundle(batch_size=1).serve()
    requests = [failed.submit([number, 1], max_new_tokens=140) for number in range(9)]
    failed.__exit__(RuntimeError, RuntimeError(), None)
    assert requests[-1].generations()[0].finish_reason == "cancelled"
