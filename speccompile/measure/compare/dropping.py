"""Dropping of methods that cannot win, prompt by prompt while they are measured.

A method is dropped when it may still be the fastest neither overall nor on any task. Its most favourable ratio is the
measured one and three standard errors, or a tenth of the leader's where that is more: ratios vary that much between
runs. Differences are those to the leader on the same prompts. Speeds are compared as ratios to autoregressive decoding
in the same process, so that other load of the machine affects both sides. Load that lasts for several prompts looks
like a slow method: so the bound is at least the ratio that its fast rounds would give, which were hardly disturbed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median
from typing import Any

from speccompile.measure.bench.groups import OVERALL, rate
from speccompile.measure.bench.measure import PromptRuns
from speccompile.measure.bench.timed import Timed
from speccompile.measure.elimination_rule import may_still_win

FREEDOM = 5
"""Minimum degrees of freedom of a standard error: six prompts of one task."""
STANDARD_ERRORS = 3.0
LEAST_MARGIN = 0.1
"""Minimum margin, as a share of the leader's ratio."""
FAST = 0.2
"""Share of rounds of one width that are faster than the one that stands for them."""

Speeds = Mapping[int, tuple[float, float]]
"""Prompt number -> tokens per second with and without drafts: medians over the passes."""


@dataclass(frozen=True)
class Leader:
    """Best method so far of one task, or overall, and its speeds."""

    task: str
    name: str
    speeds: Speeds


@dataclass(frozen=True)
class Verdict:
    """Figures by which a method was dropped. ratio: over its `prompts` prompts; ratio_at_most: its most favourable
    value; best, best_ratio: the leader overall, on the same prompts."""

    prompts: int
    ratio: float
    ratio_at_most: float
    best: str
    best_ratio: float


def speeds_of(cases: Iterable[PromptRuns]) -> dict[int, tuple[float, float]]:
    """Return the speeds of these runs; without a drafter both speeds of a prompt are the same."""
    return {
        case.number: (_speed(case.speculative or case.autoregressive), _speed(case.autoregressive)) for case in cases
    }


def _speed(repeats: Sequence[Any]) -> float:
    return median(rate(turns) for turns in repeats)


def leaders_of(passes: Mapping[str, Sequence[PromptRuns]]) -> list[Leader]:
    """Return the leader overall and of every task. passes: name -> runs of all questions, of the methods that may
    lead."""
    tasks = dict.fromkeys(case.group for cases in passes.values() for case in cases)
    speeds = {name: speeds_of(cases) for name, cases in passes.items()}
    numbers = {
        task: {case.number for cases in passes.values() for case in cases if case.group == task} for task in tasks
    }
    numbers[OVERALL] = set().union(*numbers.values())
    found = []
    for task, members in numbers.items():
        name = max(speeds, key=lambda each: ratio_of(speeds[each][number] for number in members))
        found.append(Leader(task, name, {number: speeds[name][number] for number in sorted(members)}))
    return found


def ratio_of(speeds: Iterable[tuple[float, float]]) -> float:
    """Return the ratio of the mean speeds, as the report does."""
    ours, theirs = zip(*speeds, strict=True)
    return fmean(ours) / fmean(theirs)


def find_verdict(cases: Sequence[PromptRuns], leaders: Sequence[Leader]) -> Verdict | None:
    """Return the figures overall of a method that cannot win any more, else None. cases: its runs so far; leaders: see
    `leaders_of`."""
    ours = speeds_of(cases)
    overall = next(each for each in leaders if each.task == OVERALL)
    whole = _Rivalry(ours, overall.speeds, cases)
    tasks = [
        _Rivalry(ours, leader.speeds, [case for case in cases if case.number in leader.speeds])
        for leader in leaders
        if leader is not overall
    ]
    if not _is_lost([whole]) or not _is_lost(tasks):
        return None
    bound = whole.bound(_spread([whole]))
    return Verdict(len(ours), whole.ratio, bound, overall.name, whole.best_ratio)


def undisturbed_ratio(cases: Iterable[PromptRuns]) -> float:
    """Return the ratio to autoregressive decoding, without the prefill, if every round took the time of a fast one of
    its width; 0 without rounds."""
    runs = list(cases)
    ours = [timed for case in runs for turns in case.speculative for timed in turns]
    theirs = [timed for case in runs for turns in case.autoregressive for timed in turns]
    slow = _undisturbed_rate(theirs)
    return _undisturbed_rate(ours) / slow if slow else 0.0


def _undisturbed_rate(runs: Sequence[Timed]) -> float:
    """Return new tokens per second of rounds; 0 without any."""
    by_width: dict[int, list[float]] = {}
    for timed in runs:
        for drafts, gap in zip(timed.generation.draft_lengths, timed.gaps, strict=True):
            by_width.setdefault(drafts, []).append(gap)
    seconds = sum(len(gaps) * sorted(gaps)[int(FAST * len(gaps))] for gaps in by_width.values())
    return sum(sum(timed.new_tokens) for timed in runs) / seconds if seconds else 0.0


class _Rivalry:
    """A method and the leader on the same prompts. Pseudo-values of a ratio estimator (Cochran 1977, section 6.4):
    their mean is the ratio, and their variance that of the ratio, with both sides of a prompt measured together."""

    def __init__(self, ours: Speeds, theirs: Speeds, cases: Sequence[PromptRuns]) -> None:
        numbers = [case.number for case in cases]
        self.count = len(numbers)
        if not numbers:
            return
        mine, best = _values([ours[number] for number in numbers]), _values([theirs[number] for number in numbers])
        self.ratio, self.best_ratio = fmean(mine), fmean(best)
        self.undisturbed = undisturbed_ratio(cases)
        gap = self.ratio - self.best_ratio
        self.squares = sum((a - b - gap) ** 2 for a, b in zip(mine, best, strict=True))

    def bound(self, spread: float) -> float:
        """Return the most favourable ratio. spread: standard deviation of the differences to the leader."""
        margin = LEAST_MARGIN * self.best_ratio
        return max(self.ratio + max(STANDARD_ERRORS * spread / sqrt(self.count), margin), self.undisturbed)


def _values(speeds: Sequence[tuple[float, float]]) -> list[float]:
    ratio, mean = ratio_of(speeds), fmean(theirs for _, theirs in speeds)
    return [ratio + (ours - ratio * theirs) / mean for ours, theirs in speeds]


def _is_lost(rivalries: Sequence[_Rivalry]) -> bool:
    """Return whether the method can win none of these; a task that has not been measured yet may be won."""
    if not all(each.count for each in rivalries) or _freedom(rivalries) < FREEDOM:
        return False
    spread = _spread(rivalries)
    return not any(may_still_win(each.bound(spread), each.best_ratio) for each in rivalries)


def _freedom(rivalries: Sequence[_Rivalry]) -> int:
    return sum(each.count for each in rivalries) - len(rivalries)


def _spread(rivalries: Sequence[_Rivalry]) -> float:
    """Return the standard deviation of differences to the leader within tasks, pooled over them."""
    return sqrt(sum(each.squares for each in rivalries) / _freedom(rivalries))
