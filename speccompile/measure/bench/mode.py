"""Statistics of one decoding mode over its generations: rates, times, latencies and counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from speccompile.measure.bench.measure import Answers, generations, host_seconds
from speccompile.runtime import Generation

QUANTILES = (1, *range(5, 100, 5), 99)
"""Percentages at which reports show a distribution."""


@dataclass(frozen=True)
class Percentiles:
    """50th, 90th and 99th percentile of observed times, in seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class ModeStatistics:
    """Statistics of one decoding mode. Rates and times are medians over all generations, None if none had a round."""

    tokens_per_second: float
    """Speed, prefill included."""
    decode_tokens_per_second: float | None
    """Speed without the prefill and its token."""
    first_token_seconds: float
    """Time of the prefill, which includes the first draft."""
    inter_token_seconds: Percentiles | None
    """Times over all new tokens but the first. Each of the n tokens of a round counts with 1/n of its time."""
    inter_token_distribution: tuple[float, ...]
    """Percentiles 1, 5, 10, .., 95, 99 of these times; empty without such a token."""
    round_seconds: Percentiles | None
    """Times over all rounds: a reader's wait for the next tokens, which arrive together."""
    encode_seconds: float | None
    """Time of encoding pictures, a part of the prefill, of the generations that have some."""
    prefill_seconds: float
    verify_seconds: float
    draft_seconds: float
    host_seconds: float
    """Time of the rounds outside their graphs. These four times are per generation."""
    host_microseconds_per_round: float | None
    new_tokens: int
    """Number over the first repeat of every prompt, like `rounds`."""
    rounds: int
    drafting_rounds: int
    """Number of rounds that verified drafts."""
    mean_accepted: float | None
    """Mean acceptance length, bonus token included, over all prompts."""
    mean_draft_length: float | None
    """Mean number of drafts that a round verified, all nodes of a tree included, over all rounds."""


def make_mode_statistics(answers: Sequence[Sequence[Answers]]) -> ModeStatistics:
    """Return the statistics of one decoding mode. answers: prompt -> repeat -> answers of the turns."""
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
        encode_seconds=known_median(one.encode_seconds for one in all_generations),
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
    """Return the new tokens per round, without the prefill's token, or None without a round."""
    with_rounds = [one for one in all_generations if one.rounds]
    rounds = sum(one.rounds for one in with_rounds)
    return sum(len(one.token_ids) - 1 for one in with_rounds) / rounds if rounds else None


def decode_rate(one: Generation) -> float | None:
    """Return the tokens per second without the prefill and its token, or None without a round."""
    return (len(one.token_ids) - 1) / (one.seconds - one.prefill_seconds) if one.rounds else None


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None, or None if there are none."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _percentiles(seconds: Sequence[float]) -> Percentiles | None:
    return Percentiles(*np.percentile(seconds, [50, 90, 99]).tolist()) if seconds else None
