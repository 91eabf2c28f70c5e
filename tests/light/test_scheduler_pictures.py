"""A service with an encoder that takes long: others begin, run and end while a picture is encoded."""

from typing import Any

import pytest

from speccompile.errors import EngineError, OverloadedError
from speccompile.serving.scheduler import Limits, Request
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.light.test_serving import PROMPT, Clock, finish, scheduler
from tests.light.toy_models import autoregressive

OTHER = [2, 7, 1, 8]  # one token shorter than PROMPT


class Slow:
    """Pictures of a sequence over a toy, which reads none: encoded when `looks` looks have been taken."""

    encode_seconds = 0.0

    def __init__(self, prompt: list[int], looks: int) -> None:
        self.identity, self.looks, self.starts, self.waits = prompt, looks, list[int](), 0

    def prepare(self, start: int, *, waits: bool) -> bool:
        self.starts.append(start)
        self.waits += waits
        self.looks -= 1
        if self.looks == -1000:
            raise EngineError("the encoder broke")
        return self.looks <= 0

    def chunk_stop(self, start: int, stop: int) -> int:
        return stop

    def reusable(self, length: int) -> int:
        return length


def seen(made: Scheduler, prompt: list[int], looks: int, **options: Any) -> tuple[Request, Slow]:
    """Submit a prompt with a picture."""
    request, pictures = made.submit(prompt, **options), Slow(prompt, looks)
    for served in made._waiting._line:
        if served.request is request:
            served.row.media = pictures
    return request, pictures


def test_others_begin_and_end_while_a_picture_is_encoded():
    made = scheduler(2)
    first, pictures = seen(made, PROMPT, 40, max_new_tokens=5)
    others = [made.submit([number, *OTHER], max_new_tokens=4) for number in range(3)]
    while pictures.looks > 1:
        made.step()
    assert [generation.prompt_tokens for (generation,) in made.observer.of("ended")] == [5, 5, 5]
    finish(made)
    assert [generation.token_ids for generation in first.generations()] == [autoregressive(PROMPT, 5)]
    for number, other in enumerate(others):
        assert other.generations()[0].token_ids == autoregressive([number, *OTHER], 4)
    assert pictures.looks <= 0


def test_one_sequence_is_encoded_at_a_time_and_a_lone_one_is_waited_for():
    made = scheduler(3)
    one, two = seen(made, PROMPT, 4, max_new_tokens=3), seen(made, OTHER, 4, max_new_tokens=3)
    for _ in range(2):
        made.step()
    assert (len(one[1].starts), one[1].waits, two[1].starts) == (4, 2, [])
    finish(made, one[0], two[0])
    assert two[1].waits > 0


def test_what_a_slot_holds_is_not_encoded_again():
    made = scheduler(2)
    made.submit(PROMPT, max_new_tokens=2)
    finish(made)
    request, pictures = seen(made, [*PROMPT, 9], 3, max_new_tokens=2)
    (found,) = finish(made, request)[0]
    assert found.token_ids == autoregressive([*PROMPT, 9], 2)
    assert set(pictures.starts) == {len(PROMPT)}
    assert found.cached_tokens == len(PROMPT)


def test_a_sequence_in_encoding_takes_no_slot_by_priority_and_is_not_late():
    clock = Clock()
    made = scheduler(1, Limits(scheduling_policy="priority", queue_seconds=5), clock)
    running = made.submit(PROMPT, max_new_tokens=30)
    made.step()
    urgent, pictures = seen(made, OTHER, 6, max_new_tokens=3, priority=-1)
    for _ in range(3):
        made.step()
    assert made.observer.of("preempted") == []
    clock.now = 6.0
    for _ in range(4):
        made.step()
    assert pictures.looks <= 0
    assert made.observer.of("preempted") == [[]]
    late = made.submit([1], max_new_tokens=1, priority=3)
    clock.now = 12.0
    (first,), (second,) = finish(made, urgent, running)
    assert (first.token_ids, second.token_ids) == (autoregressive(OTHER, 3), autoregressive(PROMPT, 30))
    with pytest.raises(OverloadedError, match="no row was free"):
        late.generations()


def test_one_that_is_cancelled_lets_the_next_be_encoded():
    made = scheduler(2)
    gone, _ = seen(made, PROMPT, 500, max_new_tokens=3)
    left, pictures = seen(made, OTHER, 2, max_new_tokens=3)
    made.step()
    assert pictures.starts == []
    gone.cancel()
    (cancelled,), (found,) = finish(made, gone, left)
    assert (cancelled.finish_reason, found.token_ids) == ("cancelled", autoregressive(OTHER, 3))


def test_an_encoder_that_breaks_ends_every_request():
    made = scheduler(2)
    broken, _ = seen(made, PROMPT, -999, max_new_tokens=3)
    with pytest.raises(EngineError, match="the encoder broke") as caught:
        made.step()
    made.fail(caught.value)
    with pytest.raises(EngineError, match="the encoder broke"):
        broken.generations()
