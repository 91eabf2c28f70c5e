"""What a benchmark counts, on toy bundles; what it computes, on generations written by hand."""

import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from speccompile.errors import PromptError, UsageError
from speccompile.measure.bench import PromptRuns, make_report, measure, write_table
from speccompile.measure.bench.acceptance import Depth, acceptance_by_depth
from speccompile.measure.bench.measure import Divergence, generations
from speccompile.measure.bench.mode import QUANTILES, Percentiles, make_mode_statistics
from speccompile.measure.bench.report import mean_context
from speccompile.measure.bench.timed import Timed, generate_timed
from speccompile.runtime import Bundle
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE, timed
from tests.light.bundle_example import manifest
from tests.light.fake_bundle import toy_bundle, toy_manifest
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import autoregressive, drafts, path_lengths

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]


def draft_lengths(prompt, count, tokens):
    """Return drafts of the toy in every round, which go with `path_lengths`."""
    said, found = [*prompt, *autoregressive(prompt, count + tokens)], []
    place = len(prompt) + 1
    for length in path_lengths(prompt, count, tokens):
        found.append(len(drafts(said[:place], tokens)))
        place += length
    return found


def report_of(*pairs, **options):
    cases = [PromptRuns(number, (timed(ours),), (timed(theirs),)) for number, (ours, theirs) in enumerate(pairs, 1)]
    return make_report(toy_bundle(), cases, threads=2, max_new_tokens=7, **options)


def test_both_ways_run_in_turns_after_a_warm_up():
    ran = []

    def spy(bundle, prompt, **options):
        ran.append((prompt, options["autoregressive"]))
        return generate_timed(bundle, prompt, **options)

    with patch("speccompile.measure.bench.measure.generate_timed", spy):
        cases = measure(toy_bundle(), PROMPTS[:2], max_new_tokens=5, repeats=2)
    assert [way for _, way in ran] == [False, True, True, False, False, True, False, True, True, False]
    assert [prompt for prompt, _ in ran] == [PROMPTS[0]] * 6 + [PROMPTS[1]] * 4
    assert [case.number for case in cases] == [1, 2]
    assert {one.mode for case in cases for one in generations(case.speculative)} == {"speculative"}
    assert {one.mode for case in cases for one in generations(case.autoregressive)} == {"autoregressive"}
    assert all(len(case.speculative) == len(case.autoregressive) == 2 for case in cases)


def test_counts_are_those_of_the_toy_models():
    bundle = toy_bundle(tokens=3)
    cases = measure(bundle, PROMPTS, max_new_tokens=25, repeats=2, adaptive=False)
    report = make_report(bundle, cases, threads=None, max_new_tokens=25, adaptive=False)
    lengths = [length for prompt in PROMPTS for length in path_lengths(prompt, 25, 3)]
    drafted = [length for prompt in PROMPTS for length in draft_lengths(prompt, 25, 3)]
    assert (report.speculative.rounds, report.speculative.new_tokens) == (len(lengths), 75)
    assert (report.autoregressive.rounds, report.autoregressive.new_tokens) == (72, 75)
    assert report.speculative.mean_accepted == 72 / len(lengths)
    assert (report.autoregressive.mean_accepted, report.autoregressive.mean_draft_length) == (1.0, 0.0)
    reached = [sum(drafts >= depth for drafts in drafted) for depth in (1, 2, 3)]
    assert len(lengths) > reached[0] > reached[2] > 0
    assert [(depth.rounds, depth.accepted) for depth in report.acceptance_by_depth] == [
        (rounds, sum(length > depth for length in lengths) / rounds) for depth, rounds in enumerate(reached, 1)
    ]
    assert (report.prompts, report.repeats, report.equal_prompts, report.differences) == (3, 2, 3, ())
    assert (report.draft_length, report.speculative.mean_draft_length) == ("fixed", sum(drafted) / len(lengths))
    assert (report.groups, report.costs, report.roofline, report.conversation) == ((), None, None, None)


class SteppedEngine(ToyEngine):
    """Every verify takes a second on a clock, every draft a quarter."""

    now = 0.0

    def bind(self, graph, widths, optional=(), rows=None):
        run = super().bind(graph, widths, optional, rows)

        def stepped():
            run()
            SteppedEngine.now += 0.25 if graph == "draft" else 1.0

        return stepped


def test_rounds_are_timed_to_their_end(monkeypatch):
    monkeypatch.setattr("speccompile.runtime.batch.perf_counter", lambda: SteppedEngine.now)
    made = toy_manifest()
    bundle = Bundle(made, SteppedEngine(made), made.engines[0], None, None)
    prompt = [3, 1, 4] * 11  # three chunks, with drafts
    for _ in range(2):
        ours = generate_timed(bundle, prompt, max_new_tokens=20, adaptive=False)
        assert (ours.first_token, len(ours.gaps)) == (3 * 1.25, ours.generation.rounds)
        assert set(ours.gaps[:-1]) == {1.25}
        assert ours.gaps[-1] == 1  # the last round drafts no more
        assert sum(ours.new_tokens) == 19
        theirs = generate_timed(bundle, prompt, max_new_tokens=20, autoregressive=True)
        assert (theirs.first_token, theirs.gaps, theirs.new_tokens) == (3, (1,) * 19, [1] * 19)
    single = generate_timed(bundle, prompt, max_new_tokens=1)
    assert (single.first_token, single.gaps, single.new_tokens) == (2 * 1.25 + 1, (), [])


def test_tokens_that_come_at_once_share_their_time():
    ours = Timed(SPECULATIVE, 0.5, (0.3, 0.2, 0.7))  # of three tokens, two, and one
    way = make_mode_statistics([((ours,),)])
    shares = [0.1, 0.1, 0.1, 0.1, 0.1, 0.7]
    assert way.first_token_seconds == 0.5
    assert way.inter_token_seconds.p50 == pytest.approx(0.1)
    assert way.inter_token_seconds.p90 == pytest.approx(0.4)  # halfway between the last two
    assert way.inter_token_distribution[0] == pytest.approx(min(shares))
    assert len(way.inter_token_distribution) == len(QUANTILES)
    assert way.round_seconds == Percentiles(*(pytest.approx(value) for value in (0.3, 0.62, 0.692)))


def test_the_time_of_encoding_pictures_has_a_row():
    plain = SPECULATIVE, AUTOREGRESSIVE
    seen = tuple(replace(each, encode_seconds=0.25) for each in plain)
    report = report_of(seen, plain)
    assert report.to_json()["autoregressive"]["encode_seconds"] == 0.25
    assert re.search(r"^encode ms +250\.00 +250\.00$", write_table(report), re.M)
    assert "encode ms" not in write_table(report_of(plain))


def test_medians_ratios_and_shares():
    slow = replace(AUTOREGRESSIVE, seconds=2.8, tokens_per_second=2.5)
    report = report_of((SPECULATIVE, AUTOREGRESSIVE), (SPECULATIVE, slow), (SPECULATIVE, AUTOREGRESSIVE))
    ours, theirs = report.speculative, report.autoregressive
    assert (ours.tokens_per_second, theirs.tokens_per_second) == (10.0, 5.0)
    assert (ours.decode_tokens_per_second, theirs.decode_tokens_per_second) == pytest.approx((10.0, 5.0))
    assert (ours.prefill_seconds, ours.verify_seconds, ours.draft_seconds) == (0.1, 0.3, 0.2)
    assert ours.host_seconds == pytest.approx(0.1)
    assert ours.host_microseconds_per_round == pytest.approx(1e5 / 3)
    assert report.speedup == 2.0
    assert report.decode_speedup == pytest.approx(2.0)
    assert report.full_prompts == 0
    full = replace(SPECULATIVE, finish_reason="capacity")
    assert report_of((full, AUTOREGRESSIVE), (SPECULATIVE, AUTOREGRESSIVE)).full_prompts == 1


def test_acceptance_counts_the_rounds_that_drafted_so_deep():
    fixed = replace(SPECULATIVE, path_lengths=[5, 2, 1])
    assert report_of((fixed, AUTOREGRESSIVE)).acceptance_by_depth == (
        Depth(1, 3, 2 / 3, 2 / 3),
        Depth(2, 3, 1 / 3, 1 / 2),
        Depth(3, 3, 1 / 3, 1.0),
        Depth(4, 3, 1 / 3, 1.0),
    )
    none_accepted = report_of((replace(SPECULATIVE, path_lengths=[1, 1], draft_lengths=[4, 4], rounds=2),
                               AUTOREGRESSIVE)).acceptance_by_depth  # fmt: skip
    assert none_accepted[:2] == (Depth(1, 2, 0.0, 0.0), Depth(2, 2, 0.0, None))
    adaptive = replace(SPECULATIVE, path_lengths=[3, 2, 1, 1], draft_lengths=[2, 3, 1, 0])
    assert acceptance_by_depth([adaptive], toy_bundle().manifest) == (
        Depth(1, 3, 2 / 3, 2 / 3),
        Depth(2, 2, 1 / 2, 1 / 2),
        Depth(3, 1, 0.0, None),
        Depth(4, 0, None, None),
    )


def test_a_tree_is_no_deeper_than_it_has_drafts():
    """Count depths of an index and of votes, which may give fewer drafts than there is room for."""
    tree = manifest(tree="static", tokens=6, depth=2)
    ran = replace(SPECULATIVE, path_lengths=[3, 2, 1], draft_lengths=[6, 6, 0])
    assert acceptance_by_depth([ran], tree) == (Depth(1, 2, 1.0, 1.0), Depth(2, 2, 0.5, 0.5))
    fewer = replace(ran, draft_lengths=[6, 1, 0])
    assert acceptance_by_depth([fewer], tree) == (Depth(1, 2, 1.0, 1.0), Depth(2, 1, 1.0, 1.0))


def test_generations_without_a_round_have_no_decode_rate():
    single = {"token_ids": [1], "rounds": 0, "acceptance_length": None, "path_lengths": [], "draft_lengths": []}
    report = report_of((replace(SPECULATIVE, **single), replace(AUTOREGRESSIVE, **single)))
    ours = report.speculative
    assert (ours.decode_tokens_per_second, ours.host_microseconds_per_round, ours.mean_accepted) == (None,) * 3
    assert (ours.inter_token_seconds, ours.inter_token_distribution, ours.round_seconds) == (None, (), None)
    assert (report.decode_speedup, report.acceptance_by_depth, ours.mean_draft_length) == (None, (), None)
    assert "tokens/s without prefill                 -               -" in write_table(report)


@pytest.mark.parametrize(
    ("tokens", "difference"),
    [([1, 2, 9, 4, 5, 6, 7], Divergence(2, 1, 2, 3, 9)), ([1, 2, 3, 4, 5, 6], Divergence(2, 1, 6, 7, None))],
)
def test_the_first_difference_is_found(tokens, difference):
    report = report_of((SPECULATIVE, AUTOREGRESSIVE), (SPECULATIVE, replace(AUTOREGRESSIVE, token_ids=tokens)))
    assert (report.equal_prompts, report.differences) == (1, (difference,))
    told = f"prompt 2: new token {difference.index} is {difference.speculative} speculatively and "
    assert write_table(report).splitlines()[-2:] == [
        "same tokens on 1 of 2 prompts",
        f"{told}{difference.autoregressive} autoregressively",
    ]


def test_a_difference_names_its_turn():
    other = replace(AUTOREGRESSIVE, token_ids=[1, 2, 3, 4, 5, 6, 8])
    case = PromptRuns(3, (timed(SPECULATIVE) * 2,), (timed(AUTOREGRESSIVE) + timed(other),), "mt_bench")
    assert case.difference() == Divergence(3, 2, 6, 7, 8)


def test_the_mean_context_is_that_of_the_middle_of_generations():
    long = replace(AUTOREGRESSIVE, prompt_tokens=100)
    cases = [PromptRuns(1, (), (timed(AUTOREGRESSIVE), timed(long)))]
    assert mean_context(cases) == round((3 + 100) / 2 + 3.5)


def test_prompts_and_repeats_that_are_refused():
    with pytest.raises(PromptError, match="prompt 2: token id 999 is out of range: expected 0 to 257"):
        measure(toy_bundle(), [[1], [999]])
    with pytest.raises(UsageError, match="repeats is 0: expected at least 1"):
        measure(toy_bundle(), [[1]], repeats=0)


def test_the_versions_are_those_of_the_engines_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", SimpleNamespace(__version__="1.7"))
    bundle = toy_bundle()
    bundle.entry = replace(bundle.entry, backend="tensorrt_rtx")
    cases = measure(bundle, [[3, 1, 4]], max_new_tokens=4, repeats=1)
    versions = make_report(bundle, cases, threads=None, max_new_tokens=4).versions
    assert versions.keys() == {"speccompile", "python", "numpy", "tokenizers", "tensorrt_rtx"}
    assert versions["tensorrt_rtx"] == "1.7"
