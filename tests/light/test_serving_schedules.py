"""Hundreds of random schedules over toy bundles, whose engine finds every row that was never written."""

import threading

import pytest

from speccompile.errors import EngineError, OverloadedError
from speccompile.serving.scheduler import Limits
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.light.fake_bundle import toy_bundle
from tests.light.toy_models import autoregressive
from tests.serving_schedules import Preemptions, play

KINDS = {
    "chain": {},
    "fused": {"fused": True},
    "alone": {"speculative": False},
    "static": {"tree": "static"},
    "dynamic": {"tree": "dynamic", "fused": True},
    "features": {"features": True},
    "pairs": {"features": True, "pairs": True},
    "fused pairs": {"features": True, "pairs": True, "fused": True},
    "carried": {"carried": True},
    "sampled": {"sampling": True},
    "drawn": {"sampling": True, "sample": True},
    "drawn tree": {"sampling": True, "sample": True, "tree": "static"},
    "fused drawn": {"sampling": True, "sample": True, "fused": True},
}
PROMPT = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.sweep("more schedules"))])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_every_request_gets_what_it_gets_alone(kind, rows, text, seeds):
    found = []
    for seed in seeds:
        bundle = toy_bundle(text, ranges=bool(seed % 2), batch_size=rows, max_length=64, prefill_chunk=8, **KINDS[kind])
        found += play(bundle, seed)
    assert len(found) > 5 * len(seeds)
    if kind != "carried":
        assert sum(generation.cached_tokens for generation in found) > 15 * len(seeds)


@pytest.mark.sweep("more drafters", but=["dynamic", "fused pairs", "sampled"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "drawn" not in kind])
def test_preempted_sequences_get_what_they_get_alone(kind, text):
    told, found = Preemptions(), []
    for seed in range(4):
        size = {"batch_size": 1 + seed % 2, "max_length": 64, "prefill_chunk": 8}
        found += play(toy_bundle(text, ranges=seed < 3, **size, **KINDS[kind]), seed, told=told)
    assert len(found) > 30
    assert told.count > 8


@pytest.mark.parametrize("kind", ["drawn", "drawn tree", "fused drawn"])
def test_sequences_whose_tokens_depend_on_their_rounds_keep_their_slots(kind):
    bundle = toy_bundle(batch_size=1, max_length=64, **KINDS[kind])
    options = [{"temperature": 1.0, "seed": 3}, {}, {"temperature": 1.0, "seed": 3, "autoregressive": True}]
    for preempted, option in zip([0, 1, 1], options, strict=True):
        alone, told = bundle.generate(PROMPT, max_new_tokens=30, **option), Preemptions()
        made = Scheduler(bundle, Limits(scheduling_policy="priority"), told)
        slow = made.submit(PROMPT, max_new_tokens=30, **option)
        for _ in range(4):
            made.step()
        made.submit(PROMPT[1:], max_new_tokens=3, priority=-1)
        while not made.is_idle:
            made.step()
        assert slow.generations()[0].token_ids == alone.token_ids
        assert told.count == preempted


def test_requests_of_many_threads(text):
    bundle = toy_bundle(text, batch_size=3, sampling=True)
    expected = {number: bundle.generate([number, *PROMPT], max_new_tokens=30, seed=number, temperature=number % 2)
                for number in range(24)}  # fmt: skip
    found = {}

    def ask(number: int) -> None:
        request = service.submit([number, *PROMPT], max_new_tokens=30, seed=number, temperature=number % 2)
        found[number] = request.generations()[0]

    with bundle.serve() as service:
        threads = [threading.Thread(target=ask, args=[number]) for number in expected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, generation in found.items():
        assert (generation.text, generation.token_ids) == (expected[number].text, expected[number].token_ids)
    assert len(found) == 24


def test_a_closing_service_finishes_what_it_has():
    service = toy_bundle(batch_size=2).serve()
    requests = [service.submit([number, *PROMPT], max_new_tokens=20) for number in range(5)]
    service.close()
    service.close()
    for number, request in enumerate(requests):
        assert request.generations()[0].token_ids == autoregressive([number, *PROMPT], 20)
    assert (service.waiting, service.running, service.failure) == (0, 0, None)
    with pytest.raises(OverloadedError, match="the service is closing: it takes no more requests") as caught:
        service.submit(PROMPT)
    assert caught.value.retry_after is None


@pytest.mark.parametrize("way", [{"drain": False}, {"timeout": 0.0}])
def test_a_service_that_does_not_wait(way):
    bundle = toy_bundle(batch_size=2)
    turn = threading.Event()
    run = bundle._loop.decode
    bundle._loop.decode = lambda: (turn.wait(60), run())
    service = bundle.serve()
    requests = [service.submit(PROMPT, max_new_tokens=100) for _ in range(5)]
    threading.Timer(0.05, turn.set).start()
    service.close(**way)
    reasons = [request.generations()[0].finish_reason for request in requests]
    assert reasons == ["cancelled"] * 5
    bundle._loop.decode = run
    assert bundle.generate(PROMPT, max_new_tokens=5).token_ids == autoregressive(PROMPT, 5)


def test_an_engine_that_never_comes_back_is_left_behind(monkeypatch):
    monkeypatch.setattr("speccompile.serving.scheduler.service.LAST_ROUND", 0.01)
    bundle = toy_bundle()
    turn = threading.Event()
    bundle._loop.decode = lambda: turn.wait(60)
    service = bundle.serve()
    service.submit(PROMPT)
    service.close(timeout=0.01)
    turn.set()


def test_a_block_that_fails_does_not_wait():
    requests = []

    def fail() -> None:
        with toy_bundle().serve() as service:
            requests.append(service.submit(PROMPT, max_new_tokens=10))
            raise KeyError(PROMPT[0])

    with pytest.raises(KeyError):
        fail()
    (request,) = requests
    assert request.generations()[0].finish_reason in ("cancelled", "length")


def test_an_engine_that_fails_ends_the_service():
    bundle = toy_bundle()
    service = bundle.serve(Limits(requests=3))
    assert service.limits.requests == 3
    bundle._loop.decode = lambda: 1 / 0
    request = service.submit(PROMPT)
    with pytest.raises(ZeroDivisionError):
        list(request)
    service.close()
    assert isinstance(service.failure, ZeroDivisionError)
    with pytest.raises(EngineError, match="the service has ended: division by zero"):
        service.submit(PROMPT)


def test_a_bundle_that_serves_does_nothing_else():
    bundle = toy_bundle()
    with bundle.serve() as service:
        for use in (bundle.serve, bundle.reset, lambda: bundle.generate(PROMPT)):
            with pytest.raises(EngineError, match="this bundle serves requests, and nothing else meanwhile") as caught:
                use()
            assert caught.value.hint
        assert service.submit(PROMPT, max_new_tokens=3).generations()[0].token_ids == autoregressive(PROMPT, 3)
    assert bundle.generate(PROMPT, max_new_tokens=3).token_ids == autoregressive(PROMPT, 3)
