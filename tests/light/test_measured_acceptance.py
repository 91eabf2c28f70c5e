"""Acceptance that a build has measured, as the prior of a process before its own rounds."""

from random import Random

import numpy as np
import pytest

from speccompile.bundle.acceptance import MeasuredAcceptance, measured
from speccompile.compiler.build.cache_acceptance import check_acceptance
from speccompile.errors import BundleError, ProofError
from speccompile.runtime.rounds.acceptance_rate import LONG_MEMORY, Acceptance, count_rounds
from speccompile.runtime.rounds.adaptive_length import AdaptiveDraftLength

CHAIN = {width: width - 1 for width in range(1, 6)}
GOOD = MeasuredAcceptance(520, 520, (520, 420, 340, 280), (420, 340, 280, 230))


def test_rounds_are_counted_by_depth():
    rounds = [(1, 3), (4, 3), (3, 3), (1, 0), (2, 1), (1, 2)]
    found = count_rounds(rounds, 3, is_chain=True)
    assert found == MeasuredAcceptance(6, 5, (5, 2, 2), (3, 2, 1))
    assert (
        MeasuredAcceptance(**{key: tuple(v) if isinstance(v, list) else v for key, v in found.to_json().items()})
        == found
    )


def test_a_round_of_a_tree_may_accept_its_whole_depth_however_many_nodes_it_had():
    assert count_rounds([(3, 1), (1, 7)], 2, is_chain=False) == MeasuredAcceptance(2, 2, (2, 1), (1, 1))


def test_an_engine_has_the_row_that_stands_for_it():
    rows = [{"engines": ["a"], "acceptance": GOOD.to_json()}, {"engines": ["b", "c"]}]
    assert measured({"engines": rows}, "a", 4) == GOOD
    assert measured({"engines": rows}, "c", 4) is None
    assert measured({"proven": False}, "a", 4) is None
    with pytest.raises(BundleError, match=r"^proof.json: acceptance of the engine 'a' has counts of 4 and 4 depths"):
        measured({"engines": rows}, "a", 3)


def test_before_any_round_it_is_expected_that_drafts_come_true_as_often():
    acceptance = Acceptance(4)
    acceptance.expect(GOOD)
    kept = [one / other for one, other in zip(GOOD.accepted, GOOD.tried, strict=True)]
    reached, total = 1.0, 1.0
    for chance, expected in zip(kept, acceptance.tokens()[1:], strict=True):
        reached *= chance
        total += reached
        assert expected == pytest.approx(total, rel=0.05)
    assert acceptance.rounds == acceptance.rows == pytest.approx(1.0)
    for _ in range(200):
        acceptance.add([0], 4, 0)
    assert acceptance.tokens()[4] < 1.1
    assert LONG_MEMORY == 100


def generate(policy: AdaptiveDraftLength, *, tokens: int, luck: int, chance: float, draft: float) -> tuple[int, float]:
    """Return rounds and seconds of one generation. luck: rounds at its beginning whose drafts are all wrong."""
    dice, taken, rounds, seconds, behind = Random(5), 0, 0, 0.0, 0
    policy.begin(4, tokens)
    while taken < tokens:
        width, rounds = policy.next_width(behind), rounds + 1
        if width == 1:
            policy.record_autoregressive(1.0)
            taken, seconds, behind = taken + 1, seconds + 1.0, behind + 1
            continue
        if behind:
            policy.record_catch_up(behind, draft, draft)
        else:
            policy.record_draft(draft)
        count = 0
        while luck <= 0 and count < width - 1 and dice.random() < chance:
            count += 1
        luck, behind = luck - 1, 0
        policy.record_verify(width, 1.1, [count], 0)
        taken, seconds = taken + 1 + count, seconds + 1.1 + draft
    return rounds, seconds


def test_a_cold_process_goes_on_drafting_where_its_first_rounds_had_no_luck():
    """Draft on after three rounds that accept nothing; without a proof, drafting nearly stops."""
    cold, told = AdaptiveDraftLength(CHAIN), AdaptiveDraftLength(CHAIN)
    told.expect(GOOD)
    asked = {"tokens": 64, "luck": 3, "chance": 0.8, "draft": 1.3}
    blind, _ = generate(cold, **asked)
    rounds, seconds = generate(told, **asked)
    assert blind > 55
    assert rounds < 30
    assert seconds < 55


def test_where_drafts_cost_more_than_they_bring_it_stops_as_soon_as_without():
    told = AdaptiveDraftLength(CHAIN)
    told.expect(GOOD)
    _, seconds = generate(told, tokens=64, luck=0, chance=0.8, draft=4.0)
    assert seconds < 1.15 * 64


def test_the_mean_length_and_its_error_are_those_of_the_rounds():
    random = np.random.default_rng(1)
    lengths = random.integers(0, 4, 500)  # accepted drafts a round
    accepted = tuple(int((lengths >= depth).sum()) for depth in (1, 2, 3))
    found = MeasuredAcceptance(500, 500, (500, *accepted[:2]), accepted)
    assert found.mean_length == pytest.approx(1 + lengths.mean())
    assert found.length_error == pytest.approx(lengths.std() / np.sqrt(500))


def test_caches_that_shorten_acceptance_are_refused_with_the_figure():
    def of(accepted: int, rounds: int = 1000) -> MeasuredAcceptance:
        return MeasuredAcceptance(rounds, rounds, (rounds,), (accepted,))

    check_acceptance(of(700), of(800), most=0.1)
    check_acceptance(of(70, 100), of(80, 100), most=0.05)  # few rounds tell little
    check_acceptance(of(900), of(800), most=0.05)  # nothing is lost
    with pytest.raises(
        ProofError,
        match=r"gives 1\.60 tokens in the mean, and 1\.80 with float caches: 11\.1 % fewer over 1000 .* at most 5 %",
    ) as it:
        check_acceptance(of(600), of(800), most=0.05)
    assert it.value.hint.endswith("cache.max_acceptance_loss=0.12")
