"""Which row a prompt gets, and what of it need not be read."""

import pytest

from speccompile.serving.scheduler import Limits
from tests.light.test_serving import Clock, finish, scheduler
from tests.light.toy_models import autoregressive

LONG = [*range(40)]


def served(made, prompt, **options):
    """Return what comes of one request, served alone."""
    ((generation,),) = finish(made, made.submit(prompt, max_new_tokens=6, **options))
    assert generation.token_ids == autoregressive(prompt, 6)
    return generation


def test_a_prompt_that_goes_on_from_an_answer_finds_it():
    made = scheduler()
    first = served(made, LONG)
    assert first.cached_tokens == 0
    assert served(made, [*LONG, *first.token_ids, 7, 8]).cached_tokens == 45  # all but what no round was given
    assert served(made, LONG).cached_tokens == 39
    assert served(made, [*LONG[:20], 200]).cached_tokens == 20
    assert [tuple(values[:2]) for values in made.observer.of("admitted")] == [(40, 0), (48, 45), (40, 39), (21, 20)]


def test_a_row_keeps_what_its_text_has_become():
    made = scheduler(1)
    served(made, LONG)
    served(made, [*LONG[:5], *[77] * 10])
    assert served(made, LONG).cached_tokens == 5
    assert served(made, [200]).cached_tokens == 0
    assert served(made, LONG).cached_tokens == 0


def test_the_least_recently_used_row_makes_room():
    made = scheduler(3)
    prompts = [[number] * 20 for number in range(1, 5)]
    for prompt in prompts:
        served(made, prompt)
    assert [served(made, prompt).cached_tokens for prompt in (prompts[1], prompts[2], prompts[3])] == [19, 19, 19]
    assert served(made, prompts[0]).cached_tokens == 0


def test_a_beginning_that_is_hardly_alike_does_not_cost_another_its_row():
    made = scheduler(2)
    served(made, LONG)
    other = [0, *[99] * 39]
    assert served(made, other).cached_tokens == 1  # copied into the other row
    assert served(made, LONG).cached_tokens == 39


@pytest.mark.parametrize(
    ("limits", "first", "second", "cached"),
    [
        (None, {}, {}, 39),
        (None, {"salt": "a"}, {"salt": "a"}, 39),
        (None, {"salt": "a"}, {"salt": "b"}, 0),
        (None, {"salt": "a"}, {}, 0),
        (None, {"client": "a"}, {"client": "b"}, 39),
        (None, {"reuse": False}, {}, 0),
        (None, {}, {"reuse": False}, 0),
        (Limits(reuse=False), {}, {}, 0),
    ],
)
def test_who_shares_with_whom(limits, first, second, cached):
    made = scheduler(2, limits)
    served(made, LONG, **first)
    assert served(made, LONG, **second).cached_tokens == cached


def test_what_carries_states_reads_every_prompt():
    made = scheduler(carried=True)
    served(made, LONG)
    assert served(made, LONG).cached_tokens == 0


def test_what_another_row_holds_is_copied_where_that_pays():
    clock = Clock()
    made = scheduler(3, clock=clock)
    first = made.submit(LONG, max_new_tokens=60)
    for _ in range(5):
        made.step()
    second = made.submit([*LONG[:30], 99], max_new_tokens=6)
    made.step()
    made._costs.record_copy(1.0)  # while reading costs nothing on this clock
    third = made.submit([*LONG[:30], 98], max_new_tokens=6)
    (one,), (two,), (three,) = finish(made, first, second, third)
    assert (one.cached_tokens, two.cached_tokens, three.cached_tokens) == (0, 30, 0)
    assert one.token_ids == autoregressive(LONG, 60)
    assert two.token_ids == autoregressive([*LONG[:30], 99], 6)
    assert three.token_ids == autoregressive([*LONG[:30], 98], 6)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("reuse", [True, False])
def test_several_sequences_read_their_prompt_once(rows, reuse):
    made = scheduler(rows, sampling=True)
    options = {"temperature": 1.5, "seed": 3, "max_new_tokens": 12}
    (found,) = finish(made, made.submit(LONG, num_return_sequences=5, reuse=reuse, **options))
    assert len(found) == 5
    if reuse:
        assert [generation.cached_tokens for generation in found] == [0, 39, 39, 39, 39]
    whole = scheduler(5, sampling=True).bundle.generate_batch([LONG], num_return_sequences=5, **options)
    assert [generation.token_ids for generation in found] == [generation.token_ids for generation in whole]
    assert len({tuple(generation.token_ids) for generation in found}) > 1


def test_rows_that_run_are_kept_together():
    made = scheduler(5)
    for number in range(1, 6):  # every row holds a text
        served(made, [number] * 20)
    running = made.submit([3] * 20, max_new_tokens=60)
    for _ in range(3):
        made.step()
    beside = made.submit([5] * 20, max_new_tokens=6)
    made.step()
    slots = sorted(each.slot for each in made._slots.running)
    assert slots in ([1, 2], [2, 3])
    (one,), (two,) = finish(made, running, beside)
    assert (one.cached_tokens, two.cached_tokens) == (19, 19)
    assert two.token_ids == autoregressive([5] * 20, 6)
