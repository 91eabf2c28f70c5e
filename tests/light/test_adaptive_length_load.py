"""The adaptive draft length while the number of rows in a round changes, by costs in closed form."""

from random import Random

import pytest

from speccompile.runtime.rounds.adaptive_length import AdaptiveDraftLength
from speccompile.runtime.rounds.speedup_model import SpeedupModel
from tests.light.test_adaptive_length import CHAIN


def decode(policy: AdaptiveDraftLength, rows: int, rounds: int, dice: Random) -> list[int]:
    """Return the widths of rounds with so many rows, which share what a round costs beside its tokens."""
    widths, behind = [], 0
    for _ in range(rounds):
        policy.record_batch_size(rows)
        width = policy.next_width(behind)
        if width == 1:
            behind += rows
            policy.record_autoregressive(22 + 1.7 * rows)
        else:
            drafting = 3 + 0.15 * rows * width
            if behind:
                policy.record_catch_up(behind, drafting + 0.3 * behind, drafting + 0.3 * behind)
            else:
                policy.record_draft(drafting)
            behind, accepted = 0, [0] * rows
            for row in range(rows):
                while accepted[row] < width - 1 and dice.random() < 0.725:
                    accepted[row] += 1
            policy.record_verify(width, 22 + 1.7 * rows * width, accepted, 0)
        widths.append(width)
    return widths


def test_the_more_rows_there_are_the_less_is_drafted():
    """Choose widths by costs of an int8 model on a core: the best are 5, 3 to 4, 2 to 3, none, and 5 again."""
    policy, dice, found = AdaptiveDraftLength(CHAIN), Random(3), []
    policy.begin(100, 10_000)
    for rows in (1, 4, 12, 64, 1):
        for _ in range(rows - 1):
            policy.join(100, 1000)
        found.append(decode(policy, rows, 250, dice)[30:])
    usual = [max(set(widths), key=widths.count) for widths in found]
    assert usual[0] == usual[4] == 5
    assert usual[1] in (3, 4, 5)
    assert usual[2] in (2, 3)
    assert usual[3] == 1
    assert found[3].count(1) > 0.9 * len(found[3])


def test_rows_may_come_and_go_while_nothing_is_known():
    policy = AdaptiveDraftLength(CHAIN)
    policy.begin(10, 1000)
    widths = [decode(policy, rows, 1, Random(rows))[0] for rows in (1, 2, 1, 3, 2, 2, 1, 1, 3, 2, 4) * 20]
    assert {1, 5} <= set(widths)


def test_costs_of_more_rows_are_expected_before_they_are_timed():
    speed = SpeedupModel(CHAIN, fused=False)
    for width, times in ((1, speed.autoregressive), (3, speed.windows[3]), (5, speed.windows[5])):
        for _ in range(2):
            times.add(10.0 + 2 * width)
    speed.drafting.add(3.0)
    assert speed.set_batch_size(2)
    assert not speed.set_batch_size(2)
    assert speed.is_known
    assert speed.autoregressive.typical == 14
    assert (speed.windows[3].typical, speed.windows[5].typical) == (22, 30)
    assert speed.drafting.typical == pytest.approx(3 * 14 / 12)
    speed.windows[5].add(40.0)
    assert speed.windows[5].typical == 40
    assert speed.set_batch_size(1)
    assert speed.windows[5].typical == 20
