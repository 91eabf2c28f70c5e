"""Bundles that sample, over a toy engine: equal seeds give equal tokens, however they are made."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.bundle.sampling import GREEDY, SAMPLING_OPTIONS, SamplingParams
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.sampling_inputs import PenaltyHistory
from tests.light.fake_bundle import toy_bundle
from tests.light.toy_models import VOCABULARY, autoregressive

PROMPT = [3, 1, 4, 1, 5]
WARM = {"temperature": 1.2, "seed": 7}

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
samplings = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([1.0, 0.9, 0.5]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.5]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.5, -1.5, 2.0]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.25, -2.0]),
    logit_bias=st.sampled_from([(), (), ((0, 4.5),), ((3, -100.0), (7, 5.0), (250, -2.0))]),
    seed=st.integers(0, 2**64 - 1),
)
trees = pytest.mark.parametrize("tree", ["chain", "static", "dynamic"])
ways = pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])


def options_of(*rows):
    """Return the options of a batch in which every row samples in its own way."""
    each = {name: [getattr(row, name) for row in rows] for name in SAMPLING_OPTIONS}
    return each | {"logit_bias": [dict(row.logit_bias) for row in rows]}


def numbers(generations):
    return [generation.token_ids for generation in generations]


@trees
@ways
def test_every_row_gets_what_the_target_alone_draws(tree, fused):
    """Drafts are certain, so that even the random choices are those of autoregressive decoding."""

    @given(st.lists(st.tuples(prompts, samplings), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 20))
    @settings(max_examples=15)
    def check(rows, chunk, count):
        bundle = toy_bundle(
            tree=tree, fused=fused, sampling=True, prefill_chunk=chunk, batch_size=len(rows) + 1, max_length=24
        )
        given = [prompt for prompt, _ in rows]
        for speculative in (True, False):
            generations = bundle.generate_batch(
                given, max_new_tokens=count, autoregressive=not speculative, **options_of(*(row for _, row in rows))
            )
            for (prompt, sampling), generation in zip(rows, generations, strict=True):
                assert generation.token_ids == autoregressive(prompt, min(count, 24 - len(prompt)), sampling)
                assert generation.seed == (sampling.seed if sampling.temperature else None)

    check()


@pytest.mark.parametrize("tree", ["chain", "static"])
@ways
def test_drawn_drafts_are_the_same_in_a_batch_and_alone(tree, fused):
    kinds = {"tree": tree, "fused": fused, "sampling": True, "sample": True}
    rows = [replace(GREEDY, temperature=heat, seed=seed) for heat, seed in ((1.0, 3), (0.0, 0), (2.0, 4))]
    given = [PROMPT, [9, 9], [7] * 20]
    together = toy_bundle(batch_size=3, **kinds).generate_batch(given, max_new_tokens=30, **options_of(*rows))
    alone = toy_bundle(**kinds)
    for prompt, row, generation in zip(given, rows, together, strict=True):
        for _ in range(2):
            again = alone.generate(prompt, max_new_tokens=30, temperature=row.temperature, seed=row.seed)
            assert again.token_ids == generation.token_ids
            if row.temperature:  # then it is no matter of time either
                assert again.path_lengths == generation.path_lengths
    assert max(together[0].path_lengths) > 1
    assert together[1].token_ids == autoregressive([9, 9], 30)


@ways
def test_drawn_drafts_come_from_the_targets_distribution(fused):
    bundle = toy_bundle(tree="static", fused=fused, sampling=True, sample=True, batch_size=20, max_length=16)
    counts = dict.fromkeys(range(VOCABULARY), 0)
    for start in range(0, 800, 20):
        seeds = list(range(start, start + 20))
        for one in bundle.generate_batch([[1, 2]] * 20, max_new_tokens=2, temperature=1, top_k=2, seed=seeds):
            first, second = one.token_ids
            if first == autoregressive([1, 2], 1)[0]:
                counts[second] += 1
    best, second = sorted(counts.values(), reverse=True)[:2]
    total = best + second
    assert total == sum(counts.values()) > 400
    assert abs(best / total - 0.7311) < 4 * (0.7311 * 0.2689 / total) ** 0.5  # logits 4 and 3: a share of 1 / (1 + 1/e)


def test_a_seed_repeats_and_another_does_not():
    bundle = toy_bundle(sampling=True)
    ours, again, other = (bundle.generate(PROMPT, temperature=1.5, seed=seed) for seed in (7, 7, 8))
    assert ours.token_ids == again.token_ids != other.token_ids
    drawn = bundle.generate(PROMPT, temperature=1.5)
    assert drawn.token_ids == bundle.generate(PROMPT, temperature=1.5, seed=drawn.seed).token_ids
    assert drawn.seed != bundle.generate(PROMPT, temperature=1.5).seed
    assert bundle.generate(PROMPT, seed=7, top_k=5).token_ids == autoregressive(PROMPT, 128)


def test_prompts_without_a_seed_have_one_each():
    bundle = toy_bundle(sampling=True, batch_size=2)
    first, second = bundle.generate_batch([PROMPT] * 2, temperature=2)
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    again = bundle.generate_batch([PROMPT] * 2, temperature=2, seed=[first.seed, None])
    assert again[0].token_ids == first.token_ids


def test_sequences_of_a_prompt_are_numbered_and_come_prompt_by_prompt():
    bundle = toy_bundle(sampling=True, batch_size=7)
    generations = bundle.generate_batch([PROMPT, [9]], num_return_sequences=3, max_new_tokens=12, **WARM)
    expected = [
        autoregressive(prompt, 12, SamplingParams(temperature=1.2, seed=7, sequence=number))
        for prompt in (PROMPT, [9])
        for number in range(3)
    ]
    assert numbers(generations) == expected
    assert len(set(map(tuple, expected))) == 6
    assert {generation.seed for generation in generations} == {7}
    assert bundle.generate(PROMPT, max_new_tokens=12, **WARM).token_ids == expected[0]


def test_a_greedy_generation_after_a_sampled_one_is_greedy():
    bundle = toy_bundle(sampling=True, batch_size=2)
    bundle.generate_batch([PROMPT] * 2, max_new_tokens=5, repetition_penalty=2, **WARM)
    assert bundle.generate(PROMPT, max_new_tokens=9).token_ids == autoregressive(PROMPT, 9)
    assert numbers(bundle.generate_batch([PROMPT] * 2, max_new_tokens=9)) == [autoregressive(PROMPT, 9)] * 2


def test_a_stream_samples(text):
    bundle = toy_bundle(text, sampling=True)
    stream = bundle.stream(PROMPT, max_new_tokens=20, **WARM)
    shown = "".join(stream)
    assert stream.generation.token_ids == autoregressive(PROMPT, 20, SamplingParams(temperature=1.2, seed=7))
    assert (stream.generation.text, stream.generation.seed) == (shown, 7)


def widths(bundle):
    return [len(lines[0]) for lines in bundle.engine.histories]


def test_without_a_penalty_the_history_is_one_token_wide():
    bundle = toy_bundle(sampling=True)
    bundle.generate(PROMPT * 4, max_new_tokens=40, **WARM)
    assert set(widths(bundle)) == {1}


def test_the_history_grows_in_powers_of_two_up_to_the_capacity():
    bundle = toy_bundle(sampling=True, batch_size=2, max_length=90, prefill_chunk=2)
    given = [PROMPT, list(range(50))]
    generations = bundle.generate_batch(
        given, temperature=3, seed=5, repetition_penalty=[1.4, 1], max_new_tokens=85, autoregressive=True
    )
    assert generations[0].token_ids == autoregressive(PROMPT, 85, SamplingParams(3.0, repetition_penalty=1.4, seed=5))
    text, lines = PROMPT + generations[0].token_ids, [rows[0] for rows in bundle.engine.histories]
    prefills = 25
    assert {tuple(line) for line in lines[:prefills]} == {(3, 1, 4, 5)}  # the whole prompt from the first chunk on
    for count, line in enumerate(lines[prefills:], 1):
        distinct = set(text[: len(PROMPT) + count])
        assert set(line) == distinct
        assert len(line) == min(1 << (len(distinct) - 1).bit_length(), 90)
    grown = [after for before, after in pairwise(widths(bundle)) if after != before]
    assert grown == [8, 16, 32, 64, 90]
    bound = len(bundle._loop.rounds._forwards)
    bundle.generate_batch(given, temperature=3, seed=5, repetition_penalty=[1.4, 1], autoregressive=True)
    assert len(bundle._loop.rounds._forwards) == bound


@pytest.mark.parametrize("prompt", [[9], [9, 8, 7, 6, 5, 4]], ids=len)
def test_no_round_s_tokens_are_missing_from_the_history(prompt):
    lines, manifest = {}, SimpleNamespace(batch_size=1, max_length=64)
    engine = SimpleNamespace(host_view=lambda name, shape: lines.setdefault(shape, np.zeros(shape, np.int64)))
    history, row = PenaltyHistory(engine, manifest), SequenceState(prompt, 50, 64, (), None)
    history.admit(0, prompt)
    for tokens in ([20, 21, 22, 23], [24], [25, 26, 27], [28, 29, 30, 31, 32]):
        row.append_tokens(tokens, 4, None)
        history.add(0, row)
        assert set(lines[1, history.write([0])][0]) == {*prompt, *row.token_ids}


def test_a_penalized_row_that_has_ended_is_left_alone():
    bundle = toy_bundle(sampling=True, batch_size=2, max_length=60)
    first, second = bundle.generate_batch([[1, 2, 3], [7] * 55], repetition_penalty=[1, 1.3], temperature=0)
    assert first.token_ids == autoregressive([1, 2, 3], 57)
    assert second.token_ids == autoregressive([7] * 55, 5, SamplingParams(repetition_penalty=1.3))
    assert widths(bundle)[-1] <= 8


def test_rows_draw_the_numbers_of_their_own_rounds():
    """Draw the numbers of a round once for each slot, from a stream of its own, and none for a slot that has ended."""
    bundle = toy_bundle(sampling=True, sample=True, batch_size=2, max_length=60)
    seen, made = [], []
    taken = bundle.engine._verify_row

    def watch(row, widths):
        seen.append((row, bundle.engine._per_draft("accept_uniforms", row).tolist()))
        made.append((row, bundle.engine._per_draft("draft_uniforms", row).tolist()))
        taken(row, widths)

    bundle.engine._verify_row = watch
    long, short = bundle.generate_batch([[1, 2, 3], [7] * 55], temperature=1, seed=[2, 3])
    assert long.rounds > short.rounds
    drawn = [[numbers for row, numbers in seen if row == index] for index in (0, 1)]
    before, prefill = 1, 1  # nothing is drawn while the prompt is not at its end
    assert len({tuple(each) for each in drawn[0]}) == before + prefill + long.rounds
    assert len({tuple(each) for each in drawn[1][-(long.rounds - short.rounds) :]}) == 1
    for purpose, numbers in ((1, seen), (2, made)):  # 0 are those of new tokens
        own = list(dict.fromkeys(tuple(each) for row, each in numbers if row == 0))[before:]
        philox = np.random.Generator(np.random.Philox(key=np.array([2, purpose], np.uint64)))
        expected = np.floor(philox.random((len(own), len(own[0]))) * 2**24) / 2**24
        assert own == [tuple(each) for each in expected.tolist()]
