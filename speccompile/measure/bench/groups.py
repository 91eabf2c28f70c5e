"""Results by group, as Spec-Bench reports them: the mean over questions, and the ratio of the means.

Xia et al. 2024, "Unlocking Efficiency in Large Language Model Inference": a question's tokens per second cover all its
turns, prefill included. A repeated question counts with the median of its repeats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from speccompile.bundle.prompts import PLAIN
from speccompile.measure.bench.measure import Answers, PromptRuns, generations
from speccompile.measure.bench.mode import mean_accepted

OVERALL = "overall"


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of one decoding mode. tokens_per_second: mean over questions; mean_accepted: over all rounds."""

    tokens_per_second: float
    mean_accepted: float | None


@dataclass(frozen=True)
class Group:
    """Results of one group, or of all questions. Without a drafter `speculative` and `speedup` are None."""

    group: str
    prompts: int
    speculative: GroupStatistics | None
    autoregressive: GroupStatistics
    speedup: float | None
    """Ratio of the mean tokens per second."""


def make_groups(cases: Sequence[PromptRuns]) -> tuple[Group, ...]:
    """Return the groups in the order of the prompts, then all together; nothing if every prompt is plain."""
    if all(case.group == PLAIN for case in cases):
        return ()
    found: dict[str, list[PromptRuns]] = {}
    for case in cases:
        found.setdefault(case.group, []).append(case)
    return (*(make_group(name, members) for name, members in found.items()), make_group(OVERALL, cases))


def make_group(name: str, cases: Sequence[PromptRuns]) -> Group:
    """Return the results of these questions as one group."""
    ours = _statistics([case.speculative for case in cases]) if cases[0].speculative else None
    theirs = _statistics([case.autoregressive for case in cases])
    speedup = ours.tokens_per_second / theirs.tokens_per_second if ours else None
    return Group(name, len(cases), ours, theirs, speedup)


def _statistics(answers: Sequence[Sequence[Answers]]) -> GroupStatistics:
    """Return the statistics of one decoding mode. answers: question -> repeat -> answers of the turns."""
    rates = [median(rate(turns) for turns in repeats) for repeats in answers]
    return GroupStatistics(mean(rates), mean_accepted(one for repeats in answers for one in generations(repeats[:1])))


def rate(turns: Answers) -> float:
    """Return the new tokens per second over all turns."""
    return sum(len(timed.generation.token_ids) for timed in turns) / sum(timed.generation.seconds for timed in turns)
