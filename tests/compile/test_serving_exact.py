"""Requests served among others, in random schedules, over bundles of every kind of drafter."""

import threading

import pytest

from speccompile.runtime import Bundle
from tests.compile.combinations import BATCH_SIZE, FIRST, ON_STATES, REASON, every, is_tried
from tests.serving_schedules import Alone, Preemptions, play
from tests.suite.selection import sweep_but

KINDS = [
    *{each.drafter: each for each in every() if each.exact and is_tried(each)}.values(),
    *(each for each in every() if each.exact and (each.drafter, each.tree) == ("model", "chain")),
    *ON_STATES,
]
"""Of every drafter one that samples where it can, which at temperature 0 is greedy, and of a model every chain."""
FEW = [each for each in KINDS if each in FIRST and each.batch_size == BATCH_SIZE]


@pytest.mark.parametrize("combination", sweep_but(FEW, KINDS, REASON), ids=str)
def test_every_request_gets_what_it_gets_alone(workshop, combination):
    bundle = Bundle.open(workshop.bundle(combination, batch_size=BATCH_SIZE), threads=1, proposer=combination.proposer)
    alone = Alone(bundle)
    found = [each for seed in range(2) for each in play(bundle, seed, 10, alone)]
    assert len(found) > 10
    if not combination.pair:  # what carries states reuses nothing
        assert sum(generation.cached_tokens for generation in found) > 20


def test_requests_of_many_threads(built):
    """Submit from threads, whose order and batches are left to chance."""
    bundle = Bundle.open(built("model_4").path, threads=1)
    prompts = [prompt for prompt in built("model_4").prompts() for _ in range(3)]
    expected = [bundle.generate(prompt, max_new_tokens=20, logprobs=True) for prompt in prompts]
    found = {}

    def ask(number: int) -> None:
        request = service.submit(prompts[number], max_new_tokens=20, logprobs=True)
        found[number] = request.generations()[0]

    with bundle.serve() as service:
        threads = [threading.Thread(target=ask, args=[number]) for number in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, generation in enumerate(expected):
        for name in ("token_ids", "text", "logprobs", "finish_reason"):
            assert getattr(found[number], name) == getattr(generation, name)


@pytest.mark.sweep("one build for each")
@pytest.mark.parametrize("combination", FEW, ids=str)
def test_preempted_sequences_get_what_they_get_alone(workshop, combination):
    bundle = Bundle.open(workshop.bundle(combination, batch_size=BATCH_SIZE), threads=1, proposer=combination.proposer)
    told, alone = Preemptions(), Alone(bundle)
    found = [each for seed in range(2) for each in play(bundle, seed, 10, alone, told)]
    assert len(found) > 10
    assert told.count or combination.sample
