"""The scheduler in C++ decides as Python's does, and each request gets what `Bundle.generate` gives it alone."""

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from speccompile.runtime import Bundle
from tests.native.conftest import run
from tests.native.scheduler_operations import NativeSchedule, PythonSchedule
from tests.native.toy_onnx import CHUNK, DRAFTS, write_arithmetic_bundle
from tests.serving_schedules import PATIENCE, Alone, Asked, draw

KINDS = {
    "alone": {"drafts": False},
    "drafted": {},
    "fused": {"fused": True},
    "sampled": {"samples": True},
    "whole batch": {"samples": True, "has_slices": False},
}
LIMITS = [{}, {"client_rows": 1}, {"reuse": False}, {"requests": 1, "tokens": 40}, {"seconds": 0.1},
          {"queue_seconds": 0.05}, {"scheduling_policy": "priority"}]  # fmt: skip
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
TERMS = {"client": "", "salt": "", "reuse": True, "priority": 0}


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 10) if isinstance(value, float) else value


class Both:
    """Both schedulers over one bundle, which must answer alike."""

    def __init__(self, folder: Path, program: Path, library: Path, widths: list[int], limits: dict[str, Any]) -> None:
        self.ours = PythonSchedule(Bundle.open(folder, threads=1), widths, limits)
        self.theirs = NativeSchedule(program, folder, library, widths, limits)
        self.tokens: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.texts: dict[tuple[int, int], str] = defaultdict(str)
        self.ends: dict[tuple[int, int], str] = {}
        self.events: list[list[Any]] = []

    def __call__(self, **asked: Any) -> dict[str, Any]:
        expected, found = self.ours.run(asked), self.theirs.run(asked)
        # numpy adds a row's exponentials in pairs: the last digits of logprobs differ
        assert rounded(found) == rounded(expected), asked
        self.events += expected["events"]
        for number, *delta in expected["deltas"]:
            if len(delta) == 1:  # an error
                self.ends[number, 0] = delta[0]
                continue
            index, text, tokens, *_, end, _ = delta
            self.tokens[number, index] += tokens
            self.texts[number, index] += text
            if end is not None:
                self.ends[number, index] = end
        return expected

    def __enter__(self) -> "Both":
        self.theirs.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.theirs.__exit__(*error)

    def submit(self, prompt: list[int], terms: dict[str, Any] = TERMS, **options: Any) -> dict[str, Any]:
        return self(submit=options, prompt=prompt, terms=terms)

    def finish(self) -> None:
        for _ in range(PATIENCE):
            if self(step=None)["idle"]:
                return
        raise AssertionError("it never ends")


@pytest.fixture
def both(native_build: Path, onnxruntime_library: Path, tmp_path: Path):
    def opened(limits: dict[str, Any] | None = None, widths: tuple[int, ...] = (1 + DRAFTS,), **kind: Any) -> Both:
        folder = write_arithmetic_bundle(tmp_path / "b", **kind)
        return Both(folder, native_build / "scheduler_lines", onnxruntime_library, list(widths), limits or {})

    return opened


def play(both: Both, asked: list[Asked]) -> dict[int, int]:
    """Run a schedule to its end. Return the numbers of the requests that were taken."""
    numbers: dict[int, int] = {}
    for tick in range(PATIENCE):
        for place, each in enumerate(asked):
            if each.tick == tick and both.submit(each.prompt, each.terms, **each.options)["refused"] is None:
                numbers[place] = len(numbers)
            if each.patience is not None and each.tick + each.patience == tick and place in numbers:
                both(cancel=numbers[place])
        if both(step=None)["idle"] and all(each.tick <= tick for each in asked):
            return numbers
    raise AssertionError("the schedule never ends")


MORE = [pytest.param(seed, marks=pytest.mark.sweep("more schedules")) for seed in range(7, 24)]


@pytest.mark.parametrize("seed", [*range(7), *MORE])
@pytest.mark.parametrize("kind", KINDS)
def test_both_schedulers_decide_alike(both, tmp_path, kind: str, seed: int):
    random = Random(seed)
    limits = LIMITS[seed % len(LIMITS)]
    widths = tuple(random.randint(1, 1 + DRAFTS) for _ in range(7)) if KINDS[kind].get("drafts", True) else (1,)
    with both(limits, widths, **KINDS[kind]) as schedulers:
        alone = Alone(Bundle.open(tmp_path / "b", threads=1))
        asked = draw(random, alone, 12)
        if "scheduling_policy" not in limits:
            for each in asked:
                each.terms["priority"] = 0
        numbers = play(schedulers, asked)
        for place, number in numbers.items():
            if asked[place].options.get("repetition_penalty", 1) != 1:
                continue  # these graphs see a round's new tokens in the next one only
            for index, expected in enumerate(alone(asked[place].prompt, asked[place].options)):
                own = number, index
                tokens, text = schedulers.tokens[own], schedulers.texts[own]
                if schedulers.ends.get(own) in ("length", "stop", "capacity"):
                    assert (tokens, text, schedulers.ends[own]) == (
                        expected.token_ids, expected.text, expected.finish_reason)  # fmt: skip
                else:  # cancelled, or too late
                    assert tokens == expected.token_ids[: len(tokens)]
        assert numbers


def test_a_prefix_is_read_once_and_chunks_are_small_beside_decoding(both):
    with both() as schedulers:
        schedulers.submit(PROMPT, max_new_tokens=30)
        for _ in range(5):
            schedulers(step=None)
        schedulers.submit([*PROMPT, 7, 7], max_new_tokens=4)
        schedulers.finish()
        schedulers.submit([*PROMPT, 7, 8], max_new_tokens=4)
        schedulers.finish()
    admitted = [event[1:3] for event in schedulers.events if event[0] == "admitted"]
    assert admitted == [[12, 0], [14, 12], [14, 13]]
    assert len(PROMPT) > CHUNK


def test_the_more_prompts_wait_the_more_are_read_between_two_rounds(both):
    lengths, firsts = (30, 13, 9, 21, 13, 26, 17, 13), list[int]()
    with both(None, (1,), drafts=False, rows=8, prefill_chunk=32, max_length=64) as schedulers:
        for length in lengths:
            schedulers.submit([length] * length, max_new_tokens=30, ignore_eos=True)
        while sum(firsts) < len(lengths):
            events = schedulers(step=None)["events"]
            firsts.append(sum(event[0] == "first_token" for event in events))
        schedulers.finish()
    assert firsts == [1, 4, 1, 0, 1, 1]  # the last find few others, and fewer that wait


def test_a_full_queue_refuses_and_a_closing_service_finishes(both):
    with both({"requests": 1, "client_rows": 1}) as schedulers:
        for number in range(4):  # three slots, and one that waits
            schedulers.submit([number, *PROMPT], {**TERMS, "client": "one"}, max_new_tokens=6)
        assert schedulers.submit(PROMPT)["refused"] is not None
        schedulers(step=None)
        schedulers(drain=False)
        assert schedulers.submit(PROMPT)["refused"] == "the service is closing: it takes no more requests"
        schedulers.finish()
    assert set(schedulers.ends.values()) == {"length"}
    assert [event for event in schedulers.events if event[0] == "refused"] == [
        ["refused", "requests"], ["refused", "draining"]]  # fmt: skip


def test_lower_numbers_are_served_earlier(both):
    with both({"scheduling_policy": "priority"}) as schedulers:
        for number, priority in enumerate([0, 0, 0, 0, 5, -1, -1]):  # three slots
            schedulers.submit([number, *PROMPT], {**TERMS, "priority": priority}, max_new_tokens=6)
            schedulers(step=None)
        schedulers.finish()
    ends = list(schedulers.ends)
    assert ends.index((5, 0)) < ends.index((6, 0)) < ends.index((3, 0)) < ends.index((4, 0))
    with both() as schedulers:
        refused = schedulers.submit(PROMPT, {**TERMS, "priority": 1})["refused"]
    assert "priority: received 1, but this service takes requests in the order of their arrival" in refused


@pytest.mark.sweep("more bundles", but=["sampled", "whole"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_preempt_alike_and_tokens_stay_the_same(both, tmp_path, kind: str):
    """Give two urgent requests slots of three: one of these is in its prefill, the others decode."""
    options: dict[str, Any] = {"max_new_tokens": 44, "ignore_eos": True, "logprobs": True, "adaptive": False}
    if kind == "sampled":
        options |= {"max_new_tokens": 24, "temperature": 0.9, "seed": 5, "autoregressive": True}
    priorities, limits = [3, 4, 5, 4, 0, 0], {"scheduling_policy": "priority"}
    with both(limits, (1,) if kind == "alone" else (1 + DRAFTS,), **KINDS[kind]) as schedulers:
        alone = Alone(Bundle.open(tmp_path / "b", threads=1))
        for number, priority in enumerate(priorities):
            schedulers.submit([number, *PROMPT], {**TERMS, "priority": priority}, **options)
            for _ in range(2):
                schedulers(step=None)
        schedulers.finish()
        for number in range(len(priorities)):
            assert schedulers.tokens[number, 0] == alone([number, *PROMPT], options)[0].token_ids
    assert ["preempted"] in schedulers.events
    assert len([event for event in schedulers.events if event[0] == "admitted"]) == len(priorities)


@pytest.mark.parametrize("steps", [0, 2], ids=["at once", "in turn"])
def test_a_full_queue_takes_who_gets_the_slot_of_another(both, tmp_path, steps: int):
    """Exceed the queue's limit by at most as many requests as there are slots, whatever their priorities."""
    options: dict[str, Any] = {"max_new_tokens": 44, "ignore_eos": True, "adaptive": False}
    with both({"scheduling_policy": "priority", "requests": 1}, (1,), drafts=False) as schedulers:
        alone, taken = Alone(Bundle.open(tmp_path / "b", threads=1)), []
        for number, priority in enumerate([5, 5, 5, 5, 5, 6, 2, 5, 1, 0, 0, -1]):  # three slots
            if schedulers.submit([number, *PROMPT], {**TERMS, "priority": priority}, **options)["refused"] is None:
                taken.append(number)
            for _ in range(2 if number < 3 else steps):
                schedulers(step=None)
        assert taken == [0, 1, 2, 3, 6, 8, 9]  # 5 and 7 find no slot, and behind 9 the queue holds one batch too many
        schedulers.finish()
        for place, number in enumerate(taken):
            assert schedulers.tokens[place, 0] == alone([number, *PROMPT], options)[0].token_ids
    assert schedulers.events.count(["preempted"]) == 3


def test_what_is_present_is_cancelled_or_fails_with_the_engine(both):
    with both() as schedulers:
        for number in range(5):
            schedulers.submit([number, *PROMPT], max_new_tokens=40)
        for _ in range(9):
            schedulers(step=None)
        schedulers(fail="it broke")
        assert set(schedulers.ends.values()) == {"it broke"}
        assert schedulers.submit(PROMPT)["refused"] == "the service has ended: it broke"
    assert len(schedulers.ends) == 5


def test_a_drain_that_cancels_ends_all(both):
    with both() as schedulers:
        for number in range(5):
            schedulers.submit([number, *PROMPT], max_new_tokens=40)
        for _ in range(4):
            schedulers(step=None)
        schedulers(drain=True)
        schedulers.finish()
    assert list(schedulers.ends.values()) == ["cancelled"] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0: expected at least 1"),
        ({"num_return_sequences": 17}, "num_return_sequences: received 17, expected at most 16, the service's limit"),
        ({"top_logprobs": 259}, "top_logprobs: received 259, expected a whole number from 0 to 258"),
        ({"stop_token_ids": [258]}, "stop_token_ids: received 258, expected token ids from 0 to 257"),
        ({"temperature": 0.5}, "received temperature 0.5, but the bundle was compiled for greedy decoding"),
    ],
)
def test_wrong_options_are_refused_alike(both, options, message):
    with both() as schedulers:
        assert message in schedulers.submit(PROMPT, **options)["refused"]
        schedulers.submit(PROMPT, max_new_tokens=3)
        schedulers.finish()
        assert schedulers.ends == {(0, 0): "length"}


@pytest.mark.parametrize("kind", [{}, {"has_slices": False}], ids=["slices", "whole"])
def test_requests_of_several_threads_over_the_c_abi(native_build, onnxruntime_library, tmp_path, kind):
    """Make wrong calls too, and outlive the scheduler; tests/compile/test_native_sanitizers.py watches the memory."""
    run(native_build / "test_schedulers", write_arithmetic_bundle(tmp_path / "b", **kind), onnxruntime_library)
