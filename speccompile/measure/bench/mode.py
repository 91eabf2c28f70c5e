"""What the generations of one way of decoding say: rates, times, latencies and counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from speccompile.measure.bench.measure import Answers, generations, host_seconds
from speccompile.runtime import Generation

QUANTILES = (1, *range(5, 100, 5), 99)
"""In per cent: where a distribution is shown."""


@dataclass(frozen=True)
class Percentiles:
    """The times that half, nine tenths and 99 in 100 of the observations do not exceed, in seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class ModeStatistics:
    """One way of decoding. Rates and times are medians over all generations, None where none had a round."""

    tokens_per_second: float
    """Prefill included."""
    decode_tokens_per_second: float | None
    """Prefill, and the token it gives, excluded."""
    first_token_seconds: float
    """Of the prefill; the first draft is made in it."""
    inter_token_seconds: Percentiles | None
    """Over all new tokens but the first: each of the n tokens that a round gives counts with an n-th of its time."""
    inter_token_distribution: tuple[float, ...]
    """The same at 1, 5, 10, .., 95, 99 per cent; empty where there is no such token."""
    round_seconds: Percentiles | None
    """Over all rounds: how long a reader waits for the next tokens, which come at once."""
    prefill_seconds: float
    verify_seconds: float
    draft_seconds: float
    host_seconds: float
    """Time of the rounds beside their graphs. These four are per generation."""
    host_microseconds_per_round: float | None
    new_tokens: int
    """Over all prompts, once each; as `rounds`."""
    rounds: int
    drafting_rounds: int
    """Those that verified drafts."""
    mean_accepted: float | None
    """New tokens per round, the bonus token included; over all prompts."""
    mean_draft_length: float | None
    """Drafts that a round verified, of a tree all its nodes, on average over all rounds."""


def make_way(answers: Sequence[Sequence[Answers]]) -> ModeStatistics:
    """answers: those of each prompt, one a repeat."""
    every = [timed for repeats in answers for turns in repeats for timed in turns]
    all_generations = [timed.generation for timed in every]
    first = [one for repeats in answers for one in generations(repeats[:1])]
    rounds = sum(one.rounds for one in first)
    drafted = [length for one in first for length in one.draft_lengths]
    shares = [(gap, count) for timed in every for gap, count in zip(timed.gaps, timed.new_tokens, strict=True)]
    inter_token = [gap / count for gap, count in shares for _ in range(count)]
    return ModeStatistics(
        tokens_per_second=median(one.tokens_per_second for one in all_generations),
        decode_tokens_per_second=known_median(map(decode_rate, all_generations)),
        first_token_seconds=median(timed.first_token for timed in every),
        inter_token_seconds=_percentiles(inter_token),
        inter_token_distribution=tuple(np.percentile(inter_token, QUANTILES).tolist()) if inter_token else (),
        round_seconds=_percentiles([gap for gap, _ in shares]),
        prefill_seconds=median(one.prefill_seconds for one in all_generations),
        verify_seconds=median(one.verify_seconds for one in all_generations),
        draft_seconds=median(one.draft_seconds for one in all_generations),
        host_seconds=median(map(host_seconds, all_generations)),
        host_microseconds_per_round=known_median(
            host_seconds(one) / one.rounds * 1e6 for one in all_generations if one.rounds
        ),
        new_tokens=sum(len(one.token_ids) for one in first),
        rounds=rounds,
        drafting_rounds=sum(map(bool, drafted)),
        mean_accepted=mean_accepted(first),
        mean_draft_length=sum(drafted) / rounds if rounds else None,
    )


def mean_accepted(all_generations: Iterable[Generation]) -> float | None:
    """New tokens per round over all of them, the prefill's tokens left out; None without a round."""
    with_rounds = [one for one in all_generations if one.rounds]
    rounds = sum(one.rounds for one in with_rounds)
    return sum(len(one.token_ids) - 1 for one in with_rounds) / rounds if rounds else None


def decode_rate(one: Generation) -> float | None:
    """Tokens per second without prefill and the token it gives; None without a round."""
    return (len(one.token_ids) - 1) / (one.seconds - one.prefill_seconds) if one.rounds else None


def known_median(values: Iterable[float | None]) -> float | None:
    """The median of what is not None; None of nothing."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _percentiles(seconds: Sequence[float]) -> Percentiles | None:
    return Percentiles(*np.percentile(seconds, [50, 90, 99]).tolist()) if seconds else None
