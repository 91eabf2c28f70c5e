"""From rounds and costs to a choice: by hand, and against what a toy bundle does with every number of drafts."""

from dataclasses import replace
from statistics import median

import pytest

from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.mode import decode_rate
from speccompile.measure.tune.predict import (
    LinearCost,
    autoregressive,
    chain_costs,
    choose,
    fit,
    fit_draft_cost,
    speculative,
)
from speccompile.measure.tune.rounds import Rounds, Windows, accepted_at_depth, decode_seconds, rounds_of, shortened
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE
from tests.light.fake_bundle import toy_bundle

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6], [5], [7, 8, 200], [2, 2]]
LONGEST = 40

COSTS = GraphCosts({1: 1.0, 3: 1.5, 5: 2.0}, draft=0.5, host=0.25)


def toy_rounds(prompt, drafts):
    return rounds_of(toy_bundle(tokens=drafts).generate(prompt, max_new_tokens=60, adaptive=False))


@pytest.mark.parametrize("drafts", [1, 2, 3, 5, 8, LONGEST])
@pytest.mark.parametrize("prompt", PROMPTS, ids=str)
def test_a_shorter_chain_has_the_rounds_that_the_longest_tells(prompt, drafts):
    longest = toy_rounds(prompt, LONGEST)
    assert max(longest.accepted) < LONGEST, "or nobody knows"
    found, real = shortened(longest, LONGEST, drafts), toy_rounds(prompt, drafts)
    assert (found.accepted, found.drafts, found.new_tokens) == (real.accepted, real.drafts, real.new_tokens)


def test_drafts_behind_a_round_that_accepted_all_are_taken_to_be_right():
    longest = Rounds(9, drafts=(3, 3, 3), accepted=(3, 3, 0))
    assert shortened(longest, 3, 3) == longest
    assert shortened(longest, 3, 2).accepted == (2, 2, 2)
    assert shortened(longest, 3, 1).accepted == (1, 1, 1, 1, 0)


def test_rounds_are_those_behind_the_prefill():
    assert rounds_of(SPECULATIVE) == Rounds(6, drafts=(4, 4, 4), accepted=(2, 1, 4))
    assert rounds_of(replace(SPECULATIVE, token_ids=[1], path_lengths=[], draft_lengths=[])) == Rounds(0, (), ())


def test_acceptance_is_the_share_of_all_rounds():
    rounds = [Rounds(6, (4, 4), (2, 4)), Rounds(2, (4, 0), (1, 0))]
    assert accepted_at_depth(rounds, 4) == (0.75, 0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    ("windows", "drafts", "seconds"),
    [
        (Windows(4, any_width=True), (4, 4), 2 * 2.0 + 0.5 + 2 * 0.25),
        (
            Windows(4, any_width=True),
            (4, 1, 0),
            2.0 + 1.5 + 1.0 + 2 * 0.5 + 3 * 0.25,
        ),  # a window of two takes that of three
        (Windows(4, any_width=False), (4, 1, 0), 2.0 + 2.0 + 1.0 + 2 * 0.5 + 3 * 0.25),
    ],
)
def test_seconds_of_a_generation(windows, drafts, seconds):
    assert decode_seconds(Rounds(9, drafts, (0,) * len(drafts)), windows, COSTS) == pytest.approx(seconds)


def test_a_fused_step_drafts_in_its_own_time():
    rounds = Rounds(9, (4, 4), (4, 3))
    assert decode_seconds(rounds, Windows(4, any_width=False), replace(COSTS, draft=None)) == 2 * 2.25


def test_the_line_through_two_chains():
    assert fit({2: 1.0, 6: 3.0}) == LinearCost(0.0, 0.5)
    assert fit({2: 1.0, 6: 3.0}).at(4) == 2.0
    assert fit({4: 3.0}) == LinearCost(3.0, 0.0)


def chains(first, last):
    """Return costs of chains of one and of four drafts."""
    return {
        1: GraphCosts({1: 1.0, 2: first, 3: 1.5, 5: 3.0}, 0.25, 0.1),
        4: GraphCosts({1: 2.0, 2: 1.2, 3: 2.5, 5: last}, 1.0, 0.3),
    }


def test_a_chain_between_two_that_were_measured():
    found = chain_costs(chains(1.2, 3.0), 2, fused=False)
    assert found.verify == {1: 1.5, 2: 1.2, 3: 2.0}
    assert (found.draft, found.host) == (pytest.approx(0.5), pytest.approx(0.2))


def test_of_fused_chains_the_draft_is_what_the_step_takes_longer():
    measured = {drafts: replace(costs, draft=None) for drafts, costs in chains(1.5, 4.2).items()}
    line = fit_draft_cost(measured, fused=True)  # 1.5 - 1.2 and 4.2 - 3
    assert (line.base, line.slope) == (pytest.approx(0.0), pytest.approx(0.3))
    assert chain_costs(measured, 4, fused=True) is measured[4]
    found = chain_costs(measured, 2, fused=True)
    assert (found.verify[3], found.draft) == (pytest.approx(2.0 + 0.6), None)
    assert fit_draft_cost({4: measured[4]}, fused=True) is None


def candidate(**changes):
    options = {
        "depth": 4,
        "catch_up": 2,
        "precision": "int8",
        "threads": 1,
        "settings": ("drafter.tokens=4",),
    } | changes
    rounds = [Rounds(6, (4, 4), (2, 4)), Rounds(2, (4, 4), (1, 0)), Rounds(5, (4,), (4,))]
    return speculative("chain of 4", Windows(4, any_width=True), COSTS, rounds, **options)


def test_the_prediction_is_the_median_over_prompts_as_in_bench():
    found = candidate()
    assert found.tokens_per_second == median([6 / 5.0, 2 / 5.0, 5 / 2.25])
    assert found.accepted_at_depth == (0.8, 0.6, 0.4, 0.4)
    assert found.mean_accepted == pytest.approx(1 + 11 / 5)
    assert (found.drafts, found.width, found.verify_seconds, found.draft_seconds) == (4, 5, 2.0, 0.5)
    assert found.to_json()["mean_accepted"] == found.mean_accepted


def test_prediction_is_the_rate_of_a_generation_whose_rounds_take_what_costs_say():
    spent = 3 * (2.0 + 0.25) + 2 * 0.5
    ran = replace(SPECULATIVE, seconds=spent + 0.1, prefill_seconds=0.1)
    rounds = [rounds_of(ran)]
    found = speculative(
        "chain of 4", Windows(4, any_width=True), COSTS, rounds,
        depth=4, catch_up=2, precision=None, threads=1, settings=(),
    )  # fmt: skip
    assert found.tokens_per_second == pytest.approx(decode_rate(ran))


def test_without_drafts_a_round_gives_one_token():
    ran = [replace(AUTOREGRESSIVE, seconds=seconds) for seconds in (1.4, 3.0, 2.0)]
    found = autoregressive(ran, 2, ("drafter={kind: none}",))
    assert found.tokens_per_second == pytest.approx(6 / 1.8)  # of two seconds, 0.2 were the prefill's
    assert found.verify_seconds == pytest.approx(0.3 / 6)
    assert found.host_seconds == pytest.approx(1.5 / 6)
    assert (found.drafter, found.drafts, found.mean_accepted, found.threads) == ("none", 0, 1, 2)


def test_the_best_comes_first_and_of_equals_the_simplest():
    slow, fast = replace(candidate(), tokens_per_second=1.0), replace(candidate(), tokens_per_second=2.0)
    shorter, fewer = replace(fast, drafts=2, threads=8), replace(fast, drafts=2)
    assert choose([slow, fast, shorter, fewer]) == [fewer, shorter, fast, slow]
