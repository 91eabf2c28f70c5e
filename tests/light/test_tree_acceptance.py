"""Windows of the first nodes of a tree: their widths, what they are expected to accept, and when they are chosen."""

from itertools import pairwise
from random import Random

import pytest

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.adaptive_length import AdaptiveDraftLength
from speccompile.runtime.rounds.speedup_model import SpeedupModel
from speccompile.runtime.rounds.tree_acceptance import (
    NODES_GAIN,
    TreeAcceptance,
    accepted_by_width,
    offered_widths,
    tree_widths,
)

WIDTHS = [4, 7, 13, 25]
OFFERED = {1: 0, 4: 1, 7: 2, 13: 3, 25: 4}
DEPTH = 5


def test_widths_are_halves_of_all_drafts():
    assert [tree_widths(full) for full in (25, 9, 4, 3, 2)] == [WIDTHS, [3, 5, 9], [4], [3], [2]]
    assert offered_widths("dynamic", 25, DEPTH, is_cpu=True) == OFFERED
    assert offered_widths("dynamic", 25, DEPTH, is_cpu=False) == offered_widths("static", 25, DEPTH, is_cpu=True)
    assert offered_widths("static", 25, DEPTH, is_cpu=True) == {1: 0, 25: DEPTH}
    assert offered_widths("chain", 4, 3, is_cpu=True) == {1: 0, 2: 1, 3: 2, 4: 3}


def test_a_window_accepts_the_nodes_that_it_holds():
    assert accepted_by_width([1, 3, 7, 20], WIDTHS) == [2, 2, 3, 4]
    assert accepted_by_width([], WIDTHS) == [0, 0, 0, 0]


def test_expected_tokens_are_the_means_of_what_windows_accept():
    acceptance = TreeAcceptance(4, 3, DEPTH)
    for _ in range(400):
        acceptance.add([2, 3, 3, 4, 1, 1, 2, 2], 4, 2)  # two sequences with drafts, two without
    assert acceptance.tokens() == pytest.approx([1, 2.5, 3, 3.5, 4], rel=0.02)
    assert acceptance.rows == pytest.approx(0.5, abs=0.02)
    wide = acceptance.tokens()
    for _ in range(10):
        acceptance.add([1], 1, 0)  # a narrow window: nothing is learnt of what wider ones accept beyond it
    narrow = acceptance.tokens()
    assert narrow[1] < wide[1]
    factors, same = ([(after - 1) / (before - 1) for before, after in pairwise(each[1:])] for each in (wide, narrow))
    assert same == pytest.approx(factors, rel=0.05)


def test_what_other_texts_accepted_is_that_of_all_nodes():
    acceptance = TreeAcceptance(4, 3, DEPTH)
    acceptance.expect(MeasuredAcceptance(rounds=500, drafted=400, tried=(400,) * 5, accepted=(400, 400, 400, 200, 200)))
    assert acceptance.usual_tokens()[4] == pytest.approx(1 + 4, rel=0.02)
    assert acceptance.usual_tokens()[3] == pytest.approx(1 + 4 / NODES_GAIN, rel=0.02)
    assert acceptance.rows == pytest.approx((10 * 0.8 + 1) / (10 + 1))  # as that of ten rounds, and of one with drafts


@pytest.mark.parametrize(("slope", "expected"), [(0.0, 25), (0.1, 7), (2.0, 1)], ids=["wide", "between", "never"])
def test_the_window_that_pays_is_chosen(slope, expected):
    """Rounds cost as many rounds without drafts as the line says; windows accept 1.5, 3, 3.2 and 3.4 drafts. Four
    texts."""
    policy, dice, chosen = AdaptiveDraftLength(OFFERED, fused=True, tree_depth=DEPTH), Random(5), list[int]()
    policy.expect_times({
        "autoregressive": 1.0, "windows": {"7": 1.4 + 6 * slope, "25": 1.4 + 24 * slope}, "drafting": 0, "catch_up": 0,
    })  # fmt: skip
    for turn in range(200):
        width = policy.next_width(0) if turn % 50 else policy.begin(10, 400)
        chosen.append(width)
        if width == 1:
            policy.record_autoregressive(1.0)
            continue
        nodes = [1, 4, 6] if dice.random() < 0.8 else [1, 4, 6, 9, 20]
        nodes = nodes if dice.random() < 0.5 else [1, 2, *nodes[2:]]
        accepted = accepted_by_width(nodes, WIDTHS[: OFFERED[width]])
        policy.record_verify(width, 1.4 + slope * (width - 1), accepted, 0)
    assert chosen[60:].count(expected) > 120


def test_fused_rounds_between_two_timed_ones_lie_on_their_line_and_so_do_narrower_ones():
    model = SpeedupModel(OFFERED, fused=True, tree_depth=DEPTH)
    model.autoregressive.add(2.0)
    model.windows[25].add(11.0)
    assert model.seconds == pytest.approx({1: 11.0, 4: 11.0, 7: 11.0, 13: 11.0, 25: 11.0})
    model.windows[7].add(5.0)
    assert model.seconds == pytest.approx({1: 3.0, 4: 4.0, 7: 5.0, 13: 7.0, 25: 11.0})
    model.windows[7].add(10.0)
    model.windows[13].add(10.5)
    assert model.seconds[4] == pytest.approx(5.0 - 3 * 5.5 / 6)
    model.autoregressive.add(4.0)
    assert model.seconds[1] >= model.autoregressive.typical
