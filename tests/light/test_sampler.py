"""What the host writes for graphs that sample: settings, uniforms and histories, line by line."""

import numpy as np
import pytest

from speccompile.bundle.sampling import SETTINGS, SamplingParams
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.random import Purpose, Uniforms
from speccompile.runtime.rounds.sampling_inputs import SamplingInputs
from tests.light.fake_bundle import toy_manifest

NEUTRAL = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
WARM = SamplingParams(temperature=0.5, top_k=7, top_p=0.75, min_p=0.25, repetition_penalty=2.0, seed=3, sequence=1)


class Arrays:
    """An engine that has buffers and nothing else."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    def host_view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        dtype = np.int64 if name in ("history", "top_k") else np.float32
        return self.made.setdefault((name, shape), np.zeros(shape, dtype))


@pytest.fixture
def manifest():
    return toy_manifest(sampling=True, sample=True, batch_size=2, max_length=20)


@pytest.fixture
def engine():
    return Arrays()


@pytest.fixture
def sampler(engine, manifest):
    inputs = {tensor.name for graph in manifest.graphs for tensor in graph.inputs}
    assert {"accept_uniforms", "draft_uniforms"} <= inputs
    return SamplingInputs(engine, manifest, inputs)


def row(sampling: SamplingParams = WARM, prompt: tuple[int, ...] = (4, 5, 4)) -> SequenceState:
    return SequenceState(list(prompt), 10, 20, (), None, sampling)


def settings(engine: Arrays, slot: int) -> dict[str, float]:
    return {name: engine.host_view(name, (2,))[slot].item() for name in SETTINGS}


def stream(purpose: Purpose, count: int) -> list[float]:
    return Uniforms(WARM.seed, WARM.sequence, purpose).draw(count).tolist()


def test_settings_are_those_of_the_row_that_is_there(engine, sampler):
    assert settings(engine, 0) == settings(engine, 1) == NEUTRAL
    sampler.admit(1, row(), drafting=True)
    assert settings(engine, 1) == {name: getattr(WARM, name) for name in SETTINGS}
    assert settings(engine, 0) == NEUTRAL
    sampler.release(1)
    assert settings(engine, 1) == NEUTRAL


def test_every_token_has_its_own_uniform_and_every_round_its_own_for_drafts(engine, sampler, manifest):
    drafts, told = manifest.tokens, row()
    sampler.admit(0, told, drafting=True)
    numbers = stream(Purpose.NEW_TOKEN, 30)
    for number, new in enumerate(([1], [2, 3], [6])):
        sampler.write(range(2), {0: told}, 5)
        start = len(told.token_ids)
        assert engine.host_view("uniforms", (2, 5))[0].tolist() == numbers[start : start + 5]
        for name, purpose in (("accept_uniforms", Purpose.ACCEPT), ("draft_uniforms", Purpose.DRAFT)):
            ours = stream(purpose, 3 * drafts)[number * drafts : (number + 1) * drafts]
            assert engine.host_view(name, (2, drafts))[0].tolist() == ours
            assert not engine.host_view(name, (2, drafts))[1].any()
        told.append_tokens(new, 0)


def test_a_round_may_reach_behind_the_last_token(engine, sampler, manifest):
    told = row()
    sampler.admit(0, told, drafting=True)
    told.append_tokens(list(range(9)), 0)
    width = manifest.tokens + 1
    sampler.write(range(2), {0: told}, width)
    assert engine.host_view("uniforms", (2, width))[0].tolist() == stream(Purpose.NEW_TOKEN, 9 + width)[9:]


def test_a_row_without_drafts_draws_none(engine, sampler, manifest):
    sampler.admit(0, row(), drafting=False)
    sampler.write(range(2), {0: row()}, 1)
    assert not engine.host_view("accept_uniforms", (2, manifest.tokens)).any()


def test_a_history_has_every_token_once_and_grows_in_powers_of_two(engine, sampler):
    told = row()
    sampler.admit(1, told, drafting=False)
    expected = [4, 5]
    for new, width in (([], 2), ([5, 6], 4), ([4], 4), ([7], 4), ([8], 8), ([9, 10, 11], 8)):
        told.append_tokens(new, 0)
        expected += [token for token in new if token not in expected]
        assert sampler.write(range(2), {1: told}, 1) == width
        line = engine.host_view("history", (2, width))[1].tolist()
        assert line[: len(expected)] == expected
        assert set(line) == set(expected)


def test_a_history_is_no_wider_than_the_caches(engine, sampler):
    told = row(prompt=tuple(range(19)))
    sampler.admit(0, told, drafting=False)
    assert sampler.write(range(2), {0: told}, 1) == 20
    assert set(engine.host_view("history", (2, 20))[0].tolist()) == set(range(19))


def test_only_rows_of_the_run_make_it_wide(engine, sampler):
    sampler.admit(0, row(prompt=tuple(range(9))), drafting=False)
    assert sampler.write(range(1, 2), {}, 1) == 1
    assert sampler.write(range(2), {}, 1) == 16
    sampler.release(0)
    assert sampler.write(range(2), {}, 1) == 1


def test_who_comes_next_has_a_history_of_its_own(engine, sampler):
    sampler.admit(0, row(), drafting=False)
    sampler.write(range(2), {}, 1)
    other = row(prompt=(8, 9))
    sampler.release(0)
    sampler.admit(0, other, drafting=False)
    assert sampler.write(range(2), {0: other}, 1) == 2
    assert engine.host_view("history", (2, 2))[0].tolist() == [8, 9]


def test_without_a_penalty_there_is_no_history(engine, sampler):
    sampler.admit(0, row(SamplingParams(temperature=1.0, seed=1)), drafting=False)
    assert sampler.write(range(2), {}, 1) == 1
