"""Expected tokens, times of windows and the best width, in closed form."""

import pytest

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.acceptance_rate import MEMORY, PRIOR_ACCEPTANCE, PRIOR_WEIGHT, Acceptance
from speccompile.runtime.rounds.speedup_model import NEW_WIDTH_MARGIN, WIDTH_MARGIN, SpeedupModel, Times

DRAFTS = 4
CHAIN = {width: width - 1 for width in range(1, DRAFTS + 2)}


def shared(rows: float) -> list[float]:
    """Return the expected tokens after `rows` rounds: all accepted the first draft, and half the second and third."""
    first = (rows + PRIOR_ACCEPTANCE) / (rows + 1)
    second = (rows / 2 + first) / (rows + 1)
    third = (rows / 2 + second) / (rows / 2 + 1)
    return [1 + first, 1 + first + first * second, 1 + first + first * second * (1 + third)]


def test_expected_tokens_are_those_of_the_shares():
    acceptance = Acceptance(3)
    chances = [PRIOR_ACCEPTANCE, PRIOR_ACCEPTANCE**2, PRIOR_ACCEPTANCE**3]
    assert acceptance.tokens() == pytest.approx([1, *(1 + sum(chances[:count]) for count in (1, 2, 3))])
    for _ in range(400):
        acceptance.add([1, 3], 3, 0)
    assert acceptance.tokens()[1:] == pytest.approx(shared(2 * MEMORY + 2 * PRIOR_WEIGHT / (1 + MEMORY / PRIOR_WEIGHT)))
    acceptance.limit_weight(0)
    assert acceptance.tokens()[1:] == pytest.approx(shared(2 * PRIOR_WEIGHT))  # another text
    assert acceptance.rows == acceptance.rounds == 1
    for _ in range(400):
        acceptance.add([], 0, 2)
    assert acceptance.rows < 0.03
    assert acceptance.rounds < 0.05


def test_widths_that_were_not_timed_lie_on_a_line():
    speed = SpeedupModel(CHAIN, fused=False)
    assert not speed.is_known
    for _ in range(2):
        speed.autoregressive.add(1.0)
    speed.windows[5].add(3.0)
    assert not speed.is_known
    speed.drafting.add(0.5)
    assert speed.is_known
    assert list(speed.seconds.values()) == [1.5, 2.0, 2.5, 3.0, 3.5]
    speed.windows[3].add(1.2)
    assert list(speed.seconds.values()) == pytest.approx([1.5, 1.6, 1.7, 2.6, 3.5])
    assert speed.trial_cost(0) == 2.5
    speed.add_reading(100, 10.0)
    speed.add_reading(3, 10.0)  # overhead
    assert speed.trial_cost(50) == 7.5


@pytest.mark.parametrize(("current", "other"), [(5, 3), (3, 5)], ids=["narrower", "wider"])
@pytest.mark.parametrize(("has_run", "margin"), [(True, WIDTH_MARGIN), (False, NEW_WIDTH_MARGIN)])
@pytest.mark.parametrize(("share", "expected"), [(0.9, False), (1.1, True)])
def test_another_width_must_be_faster_by_a_margin(current, other, has_run, margin, share, expected):
    """Windows take as long as the tokens that they are expected to give: all are equally fast, but for the share."""
    model = SpeedupModel({1: 0, 3: 2, 5: 4}, fused=False)
    model.autoregressive.add(1.0)
    model.drafting.add(0.0)
    tokens = model.acceptance.tokens()
    model.windows[current].add(tokens[current - 1])
    seconds = tokens[other - 1] / (1 + share * margin)
    if has_run:
        model.windows[other].add(seconds)
    else:
        model.windows[other].expect(seconds, 1)
    speedup, width = model.best(current)
    assert width == (other if expected else current)
    assert speedup == pytest.approx(1 + share * margin if expected else 1.0)


def test_the_lower_quartile_of_the_last_times_counts():
    times = Times()
    for seconds in (3.0, 1.0, 2.0):
        times.add(seconds)
    assert (times.typical, times.count) == (1.0, 3)
    for _ in range(6):
        times.add(2.0)
    times.add(9.0)
    assert times.typical == 2.0


def test_evidence_of_a_text_ages_towards_that_of_all_texts():
    acceptance = Acceptance(DRAFTS)
    acceptance.expect(MeasuredAcceptance(100, 100, (100, 80, 64, 51), (80, 64, 51, 41)))
    for _ in range(4):
        acceptance.add([0], DRAFTS, 0)
    expected = []
    for _ in range(12):
        expected.append(acceptance.tokens()[DRAFTS])
        acceptance.halve()
    assert expected == sorted(expected)
    assert expected[1] > expected[0] + 0.1
    assert acceptance.usual_tokens()[DRAFTS] == pytest.approx(expected[-1], rel=0.01)
    assert expected[0] < 0.8 * expected[-1]


def test_the_usual_gain_is_that_of_all_texts_and_not_of_this_one():
    model = SpeedupModel(CHAIN, fused=False)
    for times, seconds in ((model.autoregressive, 1.0), (model.windows[5], 1.2), (model.drafting, 0.3)):
        times.add(seconds)
    model.acceptance.expect(MeasuredAcceptance(100, 100, (100, 80, 64, 51), (80, 64, 51, 41)))
    usual = model.usual_gain
    assert usual == pytest.approx((1 + 0.8 + 0.64 + 0.51 + 0.41) / 1.5, rel=0.02)
    for _ in range(8):
        model.acceptance.add([0], DRAFTS, 0)
    assert model.usual_gain == pytest.approx(usual, rel=0.1)
    assert model.best(5)[0] < 0.8 * usual


def test_expected_times_hold_until_one_sequence_was_decoded_without_drafts():
    model = SpeedupModel(CHAIN, fused=False)
    model.expect_times({"autoregressive": 1.0, "windows": {"5": 2.0}, "drafting": 0.5, "catch_up": 0.0})
    model.windows[5].add(9.0)
    assert model.windows[5].typical == 2.0
    model.set_batch_size(2)
    model.add_autoregressive(1.5)
    model.set_batch_size(1)
    assert (model.windows[5].typical, model.autoregressive.typical) == (2.0, 1.0)
    model.add_autoregressive(1.5)
    assert (model.windows[5].typical, model.autoregressive.typical) == (9.0, 1.5)
