"""Results by group, as Spec-Bench reports them: the mean over questions, and the ratio of the means.

Xia et al. 2024, "Unlocking Efficiency in Large Language Model Inference": a question's tokens per second are those of
all its turns together, prefill included. Where a question was repeated, its median stands for it.
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
    """One way of decoding. tokens_per_second: mean over questions; mean_accepted: over all rounds."""

    tokens_per_second: float
    mean_accepted: float | None


@dataclass(frozen=True)
class Group:
    """The questions of one group, or of all. Without a drafter `speculative` and `speedup` are None."""

    group: str
    prompts: int
    speculative: GroupStatistics | None
    autoregressive: GroupStatistics
    speedup: float | None
    """Of the means of tokens per second."""


def make_groups(cases: Sequence[PromptRuns]) -> tuple[Group, ...]:
    """Each group in the order of the prompts, then all of them; none for prompts that are no questions."""
    if all(case.group == PLAIN for case in cases):
        return ()
    found: dict[str, list[PromptRuns]] = {}
    for case in cases:
        found.setdefault(case.group, []).append(case)
    return (*(make_group(name, members) for name, members in found.items()), make_group(OVERALL, cases))


def make_group(name: str, cases: Sequence[PromptRuns]) -> Group:
    """Some questions together."""
    ours = _way([case.speculative for case in cases]) if cases[0].speculative else None
    theirs = _way([case.autoregressive for case in cases])
    speedup = ours.tokens_per_second / theirs.tokens_per_second if ours else None
    return Group(name, len(cases), ours, theirs, speedup)


def _way(answers: Sequence[Sequence[Answers]]) -> GroupStatistics:
    """answers: those of each question, one a repeat."""
    rates = [median(_rate(turns) for turns in repeats) for repeats in answers]
    return GroupStatistics(mean(rates), mean_accepted(one for repeats in answers for one in generations(repeats[:1])))


def _rate(turns: Answers) -> float:
    """New tokens per second over all turns."""
    return sum(len(timed.generation.token_ids) for timed in turns) / sum(timed.generation.seconds for timed in turns)
