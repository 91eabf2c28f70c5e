"""The adaptive draft length against a simulated clock: costs in closed form, drafts that are right by chance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, product
from random import Random

import pytest

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.adaptive_length import (
    FIRST_GAP,
    LONGEST_GAP,
    RARE_REFRESH,
    REFRESH,
    TRIAL_SHARE,
    AdaptiveDraftLength,
)

DRAFTS, PROMPT = 4, 128
CHAIN = {width: width - 1 for width in range(1, DRAFTS + 2)}
PREFILL = 0.2
"""Of a token of the prompt, in rounds without drafts, as everything here."""

COSTS = [(0.02, 0.05, 0.005), (0.05, 0.1, 0.01), (0.1, 0.3, 0.03), (0.2, 0.2, 0.02), (0.3, 0.4, 0.03), (0.5, 0.8, 0.05)]
"""What each token more costs in a window, what drafting costs, and what each token costs that the drafter catches up
over."""
CHANCES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]


@dataclass
class Simulation:
    """Generations as the loop makes them, on a clock of their own."""

    costs: tuple[float, float, float]
    noise: float = 0.0
    """What else goes on adds to a time, this share of it on average."""
    policy: AdaptiveDraftLength = field(default_factory=lambda: AdaptiveDraftLength(CHAIN))
    dice: Random = field(default_factory=lambda: Random(0))
    widths: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Of every round, its window and the tokens before it."""
    seen: set[int | str] = field(default_factory=set)

    def generate(self, room: int, chance: float | Callable[[int], float]) -> float:
        """Return the speed of a generation, prefill included, as a multiple of autoregressive decoding. chance: that a
        draft is right, or that at a place in the text."""
        (slope, draft, read), self.widths, self.places = self.costs, [], []
        time, taken, last, behind = PREFILL * PROMPT, 0, PROMPT, PROMPT
        width = self.policy.begin(PROMPT, room)
        if width > 1:
            behind = 0
            self.policy.record_catch_up(PROMPT, PROMPT * read, PROMPT * read)
            time += PROMPT * read
        while taken < room:
            width = self.policy.next_width(behind)
            if width > 1:
                seconds = self.clock(draft + behind * read)
                time += seconds
                if behind:
                    self.policy.record_catch_up(behind, seconds, seconds)
                else:
                    self.policy.record_draft(self.timed("draft", seconds))
                behind = 0
            elif not behind:
                behind = last
            right = chance if isinstance(chance, float) else chance(taken)
            last, seconds = 1, self.clock(1 + slope * (width - 1))
            while last < width and self.dice.random() < right:
                last += 1
            if width > 1:
                self.policy.record_verify(width, self.timed(width, seconds), [last - 1], 0)
            else:
                self.policy.record_autoregressive(self.timed(1, seconds))
                behind += behind > 0
            self.widths.append(width)
            self.places.append(taken)
            time, taken = time + seconds, taken + last
        return (PREFILL * PROMPT + taken) / time

    def timed(self, run: int | str, seconds: float) -> float | None:
        """Return the time of a run, but for the first of its sizes, which tells nothing."""
        is_first = run not in self.seen
        self.seen.add(run)
        return None if is_first else seconds

    def clock(self, seconds: float) -> float:
        return seconds * (1 + self.dice.expovariate(1 / self.noise)) if self.noise else seconds

    def fixed(self, room: int, chance: float) -> float:
        """Return the speed at the best fixed width that drafts, in closed form."""
        slope, draft, read = self.costs
        speeds = []
        for width in range(2, DRAFTS + 2):
            tokens = sum(chance**depth for depth in range(width))
            rounds = room / tokens * (1 + slope * (width - 1) + draft)
            speeds.append((PREFILL * PROMPT + room) / (PREFILL * PROMPT + PROMPT * read + rounds))
        return max(speeds)


@pytest.mark.parametrize("costs", COSTS, ids=str)
def test_no_slower_than_097_of_autoregressive_and_close_to_the_best_fixed_length(costs):
    shares = []
    for chance, room in product(CHANCES, (512, 1024)):
        simulation = Simulation(costs)
        first = simulation.generate(room, chance)
        later = [simulation.generate(room, chance) for _ in range(4)]
        best = simulation.fixed(room, chance)
        assert first >= min(0.97, best)
        assert min(later) >= 0.97
        if best > 1.05:
            shares.append(sum(later) / len(later) / best)
    assert min(shares, default=1) > 0.85
    assert sum(shares) > 0.95 * len(shares)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (5, 3)], ids=str)
@pytest.mark.parametrize("costs", [(0.05, 0.45, 0.005), (0.05, 0.9, 0.01), (0.02, 0.3, 0.005)], ids=str)
def test_sixty_texts_are_close_to_the_better_of_always_and_never(costs, shape, noise):
    """Draw acceptance rates from a beta distribution, on a clock to which other programs add."""
    slope, draft, read = costs
    simulation, dice, room = Simulation(costs, noise), Random(5), 128
    spent, always = 0.0, 0.0
    for _ in range(60):
        chance = dice.betavariate(*shape)
        spent += (PREFILL * PROMPT + room) / simulation.generate(room, chance) - PREFILL * PROMPT
        rounds = room / sum(chance**depth for depth in range(DRAFTS + 1))
        always += PROMPT * read + rounds * (1 + slope * DRAFTS + draft)
    never = 60.0 * room
    assert min(always, never) * (1 + noise) / spent >= 0.97


@pytest.mark.parametrize("costs", COSTS, ids=str)
def test_short_generations_pay_for_trials_in_common(costs):
    """Spread a trial over generations, as it may cost more than one of them allows for."""
    simulation = Simulation(costs)
    simulation.generate(128, 0.0)
    speeds = [simulation.generate(128, 0.0) for _ in range(30)]
    assert sum(speeds) / len(speeds) >= 1 - TRIAL_SHARE - 0.01
    for _ in range(30):
        speed = simulation.generate(128, 1.0)
    assert speed >= 0.95 * simulation.fixed(128, 1.0) > 1


@pytest.mark.parametrize(
    ("gain", "room", "width"), [(0.8, 64, 1), (0.9, 64, 5), (0.9, 32, 1), (1.0, 12, 5), (1.1, 64, 5), (0.8, 128, 5)]
)
def test_a_text_begins_with_drafts_that_hardly_seem_slower_or_that_cost_what_trials_may(gain, room, width):
    """Rounds of 2.5 that give so many tokens: the first of them may cost 1.5, as much as it takes longer."""
    policy, tokens, rounds = AdaptiveDraftLength({1: 0, DRAFTS + 1: DRAFTS}), 2.5 * gain, 1000
    reached = [round(rounds * min(1.0, max(0.0, tokens - 1 - depth))) for depth in range(DRAFTS)]
    policy.expect(MeasuredAcceptance(rounds, rounds, (rounds, *reached[:-1]), tuple(reached)))
    policy.expect_times({"autoregressive": 1.0, "windows": {"5": 2.0}, "drafting": 0.5, "catch_up": 0.0})
    assert policy.begin(PROMPT, room) == width


def test_what_was_won_pays_for_stretches_that_lose_and_for_little_more():
    """Draft for texts of which six of every 24 tokens cannot be predicted, then for texts of which none can."""
    simulation = Simulation((0.02, 0.95, 0.02))
    speeds = [simulation.generate(512, lambda place: 0.95 if place % 24 >= 6 else 0.0) for _ in range(8)]
    assert sum(speeds) / len(speeds) > 1.2
    assert simulation.widths.count(5) > 2 * simulation.widths.count(1)
    after = [simulation.generate(256, 0.0) for _ in range(8)]
    assert min(after) >= 0.9
    assert sum(after) / len(after) >= 0.95
    assert min(after[3:]) >= 0.96


@pytest.mark.parametrize("usual", [0.6, 0.95])
def test_a_text_whose_first_drafts_fail_is_tried_again_where_drafts_pay_as_a_rule(usual):
    """Generate as small models do: hard to predict at first, and soon repeating itself."""

    def chance(place: int) -> float:
        return 0.95 if place >= 24 else 0.0

    simulation = Simulation((0.02, 0.95, 0.02))
    for _ in range(6):
        simulation.generate(256, usual)
    speed, prefill = simulation.generate(256, chance), PREFILL * PROMPT
    # Drafted for from the 24th token on, and before never: 232 tokens at the best width's speed, 24 at one a round.
    best = (prefill + 256) / (24 + (prefill + 232) / simulation.fixed(232, 0.95))
    assert best > 1.3
    assert speed >= 0.85 * best
    rounds = zip(simulation.places, simulation.widths, strict=True)
    assert min(place for place, width in rounds if width > 1 and place >= 24) < 40


def test_a_text_that_becomes_predictable_is_found_out_and_one_that_ceases_to_be():
    simulation = Simulation((0.1, 0.1, 0.005))
    simulation.generate(4000, lambda place: 0.9 if 1000 <= place < 3000 else 0.0)
    rounds = zip(simulation.places, simulation.widths, strict=True)
    drafting = [place for place, width in rounds if width > 1]
    parts = ((0, 1000), (1000, 3000), (3000, 4000))
    drafted = [sum(start <= place < stop for place in drafting) for start, stop in parts]
    assert drafted[0] < 20
    assert 330 < drafted[1] < 520  # 490 rounds are the whole stretch, and gaps between trials are of some 500 tokens
    assert drafted[2] < 100
    assert min(place for place in drafting if place > 1000) < 1600


@pytest.mark.parametrize(("draft", "gap"), [(0.1, RARE_REFRESH), (3.0, REFRESH)])
def test_the_first_rounds_are_timed_without_drafts_and_some_later_ones(draft, gap):
    simulation = Simulation((0.1, draft, 0.01))
    simulation.generate(1000, 1.0)
    assert simulation.widths[:4] == [1, 1, 5, 5]
    singles = [place for place, width in enumerate(simulation.widths) if width == 1]
    assert singles[2:] == list(range(2 + gap, len(simulation.widths), gap + 1))
    simulation.generate(100, 1.0)
    assert set(simulation.widths) == {5}  # times outlive the generation


def test_gaps_between_trials_double():
    simulation = Simulation((0.2, 0.2, 0.0))
    simulation.generate(20_000, 0.0)
    trials = [place for place, width in enumerate(simulation.widths) if width > 1]
    gaps = [after - before - 1 for before, after in pairwise(trials) if after - before > 1]
    assert gaps == sorted(gaps)
    assert gaps[0] < LONGEST_GAP / 2
    assert gaps.count(LONGEST_GAP) > 20


def test_long_windows_are_for_drafts_that_come_true():
    widths = {}
    for chance in (0.4, 0.99):
        simulation = Simulation((0.1, 0.05, 0.005))
        simulation.generate(1000, chance)
        drafting = [width for width in simulation.widths[100:] if width > 1]
        widths[chance] = max(set(drafting), key=drafting.count)
    assert widths[0.99] == 5
    assert 1 < widths[0.4] < 5


def test_times_that_change_bring_drafting_back():
    """Rounds without drafts become slow, as where another program takes what a wide window leaves idle."""
    policy = AdaptiveDraftLength({1: 0, 5: 4})
    policy.begin(10, 10_000)
    for _ in range(2):
        policy.record_autoregressive(1.0)
    assert policy.next_width(0) == 5
    for _ in range(20):
        policy.record_draft(0.5)
        policy.record_verify(5, 3.0, [1], 0)
    assert policy.next_width(0) == 1
    chosen = []
    for lag in range(200):
        policy.record_autoregressive(4.0)
        chosen.append(policy.next_width(lag))
        if chosen[-1] == 5:
            break
    assert chosen[-1] == 5
    assert len(chosen) <= 2 * FIRST_GAP


def test_a_fused_bundle_pays_for_what_the_target_reads_again():
    """Reading again costs more than a trial may: after the first it never drafts in this generation."""
    policy = AdaptiveDraftLength(CHAIN, fused=True)
    assert policy.begin(100, 400) == 5
    policy.record_catch_up(100, 30.0, 0.0)
    widths = []
    for _ in range(400):
        widths.append(policy.next_width(len(widths)))
        if widths[-1] == 1:
            policy.record_autoregressive(1.0 if widths[1:] else None)
        else:
            policy.record_verify(5, 3.0, [0], 0)
    assert widths[:2] == [1, 1]
    assert 0 < widths.count(5) < 8
    assert 5 not in widths[20:]


def test_rounds_that_find_nothing_to_look_up_cost_little():
    """Prompt lookup: most rounds have no drafts, and then their drafter's time alone is lost."""
    for draft, pays in ((0.01, True), (0.8, False)):
        policy, singles = AdaptiveDraftLength(CHAIN), 0
        policy.begin(10, 1000)
        for number in range(400):
            width = policy.next_width(0)
            if width == 1:
                policy.record_autoregressive(1.0)
                singles += 1
                continue
            policy.record_draft(draft)
            if number % 10:
                policy.record_verify(1, 1.0, [], 1)
            else:
                policy.record_verify(width, 1.4, [width - 1], 0)
        assert singles < 20 if pays else singles > 350
