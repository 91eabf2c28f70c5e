"""Generations written by hand, for the tests of what a benchmark makes of them."""

from collections.abc import Sequence
from dataclasses import replace

from speccompile.measure.bench.measure import Answers
from speccompile.measure.bench.timed import Timed
from speccompile.runtime import Generation

SPECULATIVE = Generation(
    text=None,
    token_ids=[1, 2, 3, 4, 5, 6, 7],
    prompt_tokens=3,
    rounds=3,
    acceptance_length=2.0,
    seconds=0.7,
    tokens_per_second=10.0,
    finish_reason="length",
    mode="speculative",
    engine="onnxruntime-cpu",
    prefill_seconds=0.1,
    verify_seconds=0.3,
    draft_seconds=0.2,
    path_lengths=[3, 2, 5],
    draft_lengths=[4, 4, 4],
)
"""The last round gives one token, then the generation ends."""

AUTOREGRESSIVE = replace(
    SPECULATIVE,
    rounds=6,
    acceptance_length=1.0,
    mode="autoregressive",
    seconds=1.4,
    tokens_per_second=5.0,
    prefill_seconds=0.2,
    draft_seconds=0.0,
    path_lengths=[1] * 6,
    draft_lengths=[0] * 6,
)


def timed(generation: Generation, gaps: Sequence[float] | None = None, first_token: float = 0.1) -> Answers:
    """Return the answer to a single turn; gaps: seconds between its rounds, a tenth each by default."""
    return (Timed(generation, first_token, tuple(gaps if gaps is not None else [0.1] * generation.rounds)),)
