"""Rounds that stop drafting and begin again at any time: the target's own tokens all the same, over a toy engine that
fails the test when a row is read that was never committed."""

from dataclasses import replace
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.bundle.sampling import SamplingParams
from speccompile.runtime.rounds.bound_graphs import right_aligned_chunks
from tests.light.fake_bundle import toy_bundle
from tests.light.fake_machine import make_machine
from tests.light.forced_lengths import force
from tests.light.toy_models import VOCABULARY, autoregressive, drafts, path_lengths

PROMPT = [3, 1, 4, 1, 5]

KINDS = {
    "chain": {},
    "chain, fused": {"fused": True},
    "static": {"tree": "static"},
    "static, fused": {"tree": "static", "fused": True},
    "dynamic": {"tree": "dynamic"},
    "dynamic, fused": {"tree": "dynamic", "fused": True},
    "taps": {"features": True},
    "taps, fused": {"features": True, "fused": True},
    "pairs": {"features": True, "pairs": True},
    "states": {"carried": True},
    "states, fused": {"carried": True, "fused": True},
    "states, taps": {"carried": True, "features": True},
    "states, pairs": {"carried": True, "features": True, "pairs": True},
    "sampling": {"sampling": True},
    "sampling, static, fused": {"sampling": True, "tree": "static", "fused": True},
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)
widths = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@pytest.mark.parametrize("examples", [15, pytest.param(300, marks=pytest.mark.sweep("more examples"))])
@kinds
def test_every_row_gets_the_targets_own_tokens(kind, examples):
    @given(st.lists(prompts, min_size=1, max_size=4), widths, st.integers(1, 9), st.integers(1, 30), st.integers(0, 2))
    @settings(max_examples=examples)
    def check(rows, wanted, chunk, count, idle_rows):
        bundle = toy_bundle(prefill_chunk=chunk, batch_size=len(rows) + idle_rows, max_length=40, **kind)
        force(bundle, wanted)
        for way in ({}, {"autoregressive": True}, {}):
            sampling = {"temperature": 1.3, "seed": 7, "repetition_penalty": 1.2} if "sampling" in kind else {}
            generations = bundle.generate_batch(rows, max_new_tokens=count, **way, **sampling)
            for prompt, generation in zip(rows, generations, strict=True):
                assert generation.token_ids == autoregressive(
                    prompt, min(count, 40 - len(prompt)), SamplingParams(**sampling)
                )

    check()


@given(st.lists(prompts, min_size=1, max_size=3), widths, st.integers(1, 9), st.sampled_from(["chain", "chain, fused"]))
@settings(max_examples=60)
def test_the_drafter_drafts_as_if_it_had_never_fallen_behind(rows, wanted, chunk, kind):
    bundle = toy_bundle(tokens=4, prefill_chunk=chunk, batch_size=len(rows), max_length=60, **KINDS[kind])
    force(bundle, wanted)
    for prompt, generation in zip(rows, bundle.generate_batch(rows, max_new_tokens=30), strict=True):
        text, target = [*prompt, generation.token_ids[0]], [*prompt, *autoregressive(prompt, 40)]
        for offered, length in zip(generation.draft_lengths, generation.path_lengths, strict=True):
            drafted, right = drafts(text, 4)[:offered], target[len(text) :]
            agreed = takewhile(lambda pair: pair[0] == pair[1], zip(drafted, right, strict=False))
            assert length == 1 + len(list(agreed))
            text = target[: len(text) + length]


def test_a_round_verifies_as_many_drafts_as_the_policy_says():
    bundle = toy_bundle(tokens=4)
    policy = force(bundle, [9, 5, 5, 1, 1, 3, 2, 1])
    generation = bundle.generate(PROMPT, max_new_tokens=60)
    whole = bundle.generate(PROMPT, max_new_tokens=60, adaptive=False)
    assert generation.token_ids == whole.token_ids == autoregressive(PROMPT, 60)
    assert len(generation.draft_lengths) == generation.rounds == len(generation.path_lengths)
    most = dict.fromkeys((1, 2, 3, 5), 0)
    for count, chosen in zip(generation.draft_lengths, policy.chosen[1:], strict=False):
        assert count < chosen
        most[chosen] = max(most[chosen], count)
    assert most == {1: 0, 2: 1, 3: 2, 5: 4}
    assert whole.path_lengths == path_lengths(PROMPT, 60, 4)
    assert max(whole.draft_lengths) == 4


@pytest.mark.parametrize("rows", [[PROMPT], [PROMPT, [9, 8]]], ids=["alone", "batch"])
def test_windows_are_as_wide_as_their_longest_row(rows):
    """Pad nothing where the drafter gives few drafts."""
    bundle, seen = toy_bundle(tokens=4, batch_size=len(rows)), []
    taken = bundle.engine._verify_row

    def watch(row, widths):
        given, total = (int(bundle.engine._counts(name)[row]) for name in ("n_given", "n_total"))
        seen.append((widths["window"], total if given else 0))
        taken(row, widths)

    bundle.engine._verify_row = watch
    generations = bundle.generate_batch(rows, max_new_tokens=60, adaptive=False)
    rounds = [seen[start : start + len(rows)] for start in range(0, len(seen), len(rows))][1:]
    assert len(rounds) == max(one.rounds for one in generations)
    for found in rounds:
        assert {width for width, _ in found} == {max(total for _, total in found)}
    assert len(rows) > 1 or {found[0][0] for found in rounds} == {1, 2, 3, 4, 5}
    for row, one in enumerate(generations):
        assert one.draft_lengths == [found[row][1] - 1 for found in rounds][: one.rounds]


def test_a_tree_is_verified_whole_or_not_at_all():
    bundle = toy_bundle(tree="static")
    force(bundle, [9, 3, 1, 9])
    generation = bundle.generate(PROMPT, max_new_tokens=40)
    assert set(generation.draft_lengths) == {0, bundle.manifest.tokens}


def test_a_drafter_that_fell_behind_reads_what_it_missed_alone():
    bundle = toy_bundle(tokens=3, prefill_chunk=8)
    policy = force(bundle, [4, 1, *[1] * 20, 4, 4])
    generation = bundle.generate(PROMPT, max_new_tokens=28)
    assert generation.token_ids == autoregressive(PROMPT, 28)
    runs = bundle.engine.runs
    assert runs[: runs.index("draft")] == ["verify"] * 22  # the prefill, then rounds without drafts
    assert runs[22:27] == ["draft"] * 4 + ["verify"]  # 26 tokens in chunks of 8
    assert policy.lags[:24] == [5, 0, *range(6, 27), 0]
    assert policy.caught_up_with == [26]
    bound = len(bundle._loop.rounds._catch_ups)
    for length in range(1, 9):  # catch-ups of every length share a few shapes
        force(bundle, [4, *[1] * length])
        bundle.generate(PROMPT, max_new_tokens=60)
    assert len(bundle._loop.rounds._catch_ups) - bound <= 3  # 1, 2 and 4 tokens; 8 is there


def test_a_fused_drafter_reads_beside_the_target():
    bundle = toy_bundle(tokens=3, prefill_chunk=8, fused=True)
    policy = force(bundle, [4, 1, *[1] * 10, 4, 4])
    generation = bundle.generate(PROMPT, max_new_tokens=28)
    assert generation.token_ids == autoregressive(PROMPT, 28)
    runs, before = bundle.engine.runs, 12
    assert runs[:before] == ["step", *["verify"] * 11]
    assert runs[before : before + 2] == ["step"] * 2  # 11 tokens and the pending one in chunks of 8
    fed = bundle.engine.verified[before : before + 2]
    assert fed == [[(8, 5)], [(4, 13)]]
    assert policy.caught_up_with[-2:] == [8, 4]


def test_beside_a_target_that_carries_states_a_drafter_reads_while_it_rests():
    bundle = toy_bundle(tokens=3, prefill_chunk=8, carried=True, features=True, pairs=True)
    policy = force(bundle, [4, 1, *[1] * 10, 4, 4])
    generation = bundle.generate(PROMPT * 3, max_new_tokens=28)
    assert generation.token_ids == autoregressive(PROMPT * 3, 28)
    assert bundle.engine.runs[:-1] == ["verify", "draft"] * (len(bundle.engine.runs) // 2)
    assert set(policy.lags[1:]) == {0}
    fed = [rows[0] for rows in bundle.engine.verified]
    assert fed[:3] == [(8, 0), (7, 8), (1, 15)]  # no token of the text twice


def test_alone_a_drafter_rests_beside_a_target_that_carries_states():
    bundle = toy_bundle(tokens=3, carried=True)
    force(bundle, [1, 1, 1, 4])
    assert bundle.generate(PROMPT, max_new_tokens=28).token_ids == autoregressive(PROMPT, 28)
    assert bundle.engine.runs[:4] == ["verify"] * 3 + ["draft"]


def test_a_step_of_a_target_that_carries_states_drafts_in_every_round():
    bundle = toy_bundle(tokens=3, carried=True, fused=True)
    policy = force(bundle, [1])
    assert bundle.generate(PROMPT, max_new_tokens=28).token_ids == autoregressive(PROMPT, 28)
    assert set(bundle.engine.runs) == {"step"}
    assert policy.chosen == []


def test_a_generation_may_begin_without_the_drafter():
    for fused in (False, True):
        bundle = toy_bundle(tokens=3, prefill_chunk=8, fused=fused)
        force(bundle, [1, 1, 1, 4])
        assert bundle.generate(PROMPT * 3, max_new_tokens=28).token_ids == autoregressive(PROMPT * 3, 28)
        assert bundle.engine.runs[:4] == ["verify"] * 4


@pytest.mark.parametrize("kind", [{}, {"fused": True}, {"tree": "static"}], ids=["chain", "fused", "static"])
def test_log_probabilities_are_those_of_whole_windows(kind):
    bundle = toy_bundle(**kind)
    whole = bundle.generate(PROMPT, max_new_tokens=40, logprobs=True, adaptive=False)
    force(bundle, [9, 9, 1, 1, 1, 9, 3])
    assert bundle.generate(PROMPT, max_new_tokens=40, logprobs=True).logprobs == whole.logprobs


def borrowing(**options):
    """Return a toy bundle whose drafter reads the target's cache, and has none of its own."""
    bundle = toy_bundle(**options)
    drafting = bundle._loop.drafting
    drafting.traits = replace(drafting.traits, has_own_cache=False)
    committed = bundle.engine._committed
    bundle.engine._committed = lambda name, row, length: committed("target", row, length)
    return bundle


def test_a_fused_drafter_without_memory_begins_again_with_the_pending_token():
    bundle = borrowing(tokens=3, prefill_chunk=8, fused=True)
    policy = force(bundle, [4, 1, *[1] * 10, 4, 4])
    generation = bundle.generate(PROMPT, max_new_tokens=28)
    assert generation.token_ids == autoregressive(PROMPT, 28)
    runs = bundle.engine.runs
    assert runs[:14] == ["step", *["verify"] * 11, "step", "step"]
    assert bundle.engine.verified[12] == [(1, 16)]  # given, committed before
    assert policy.caught_up_with[1:] == []


def test_of_the_middle_of_a_text_nothing_is_drafted_without_memory():
    bundle = borrowing(tokens=3, prefill_chunk=8)
    assert bundle.generate(PROMPT * 3, max_new_tokens=8, adaptive=False).token_ids == autoregressive(PROMPT * 3, 8)
    assert bundle.engine.runs[:4] == ["verify", "verify", "draft", "verify"]


def test_a_drafter_without_memory_has_nothing_to_read():
    bundle = toy_bundle()
    drafting = bundle._loop.drafting
    drafting.traits = replace(drafting.traits, has_own_cache=False)
    policy = force(bundle, [1])
    bundle.generate(PROMPT, max_new_tokens=8)
    assert set(policy.lags[1:]) == {0}


@pytest.mark.parametrize("changes", [{"exact": False}, {"sampling": True, "sample": True}])
def test_time_never_decides_where_it_could_change_tokens(changes):
    bundle = toy_bundle(batch_size=2, **changes)
    policy = force(bundle, [1])
    warm = {"temperature": [0.0, 1.0], "seed": 3} if "sample" in changes else {}
    for generation in bundle.generate_batch([PROMPT, PROMPT], max_new_tokens=30, **warm):
        assert max(generation.draft_lengths) == 4
    assert policy.chosen == []
    if warm:  # certain in every row
        bundle.generate_batch([PROMPT, PROMPT], max_new_tokens=30)
        assert policy.chosen


@pytest.mark.parametrize("fused", [False, True])
def test_on_a_gpu_windows_are_whole_and_fused_bundles_draft_always(tmp_path, monkeypatch, fused):
    opened = make_machine(tmp_path, monkeypatch)(fused=fused, tokens=4)
    policy = force(opened.bundle, [5, 3, 1, 1])
    generation = opened.bundle.generate(PROMPT, max_new_tokens=40)
    assert generation.token_ids == autoregressive(PROMPT, 40)
    assert (policy.chosen == []) == fused
    assert opened.trt.engines == (["step"] if fused else ["verify", "draft"])
    if not fused:
        assert policy.offered == [1, 5]
        assert opened.engine.host_view("window", (1, 5)).any()


@given(st.lists(st.integers(0, 30), max_size=4), st.integers(1, 9))
def test_parts_end_together(lengths, size):
    spans = [range(3 * index, 3 * index + length) for index, length in enumerate(lengths)]
    parts = list(right_aligned_chunks(spans, size))
    assert len(parts) == max((-(-length // size) for length in lengths), default=0)
    for index, span in enumerate(spans):
        own = [each[index] for each in parts]
        assert [token for part in own for token in part] == list(span)
        begun = [bool(part) for part in own]
        assert begun == sorted(begun)
        assert all(part.start == span.start for part in own if not part)
        assert all(len(part) == size for part in own[:-1] if part)
