"""Times of a generation."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """Times of one generation, in seconds."""

    seconds: float
    """From the batch slot to the last token."""
    prefill: float
    """Reading the prompt, the pictures' `encode` included."""
    rounds: Sequence[float]
    """From the end of the prefill or of a round to the end of the next round."""
    verify: float = 0.0
    """Verifying, in all rounds together."""
    draft: float = 0.0
    """Drafting, in all rounds together; part of `verify` where a drafter is fused with the target."""
    encode: float | None = None
    """Encoding the prompt's pictures; None without any."""
    queue: float = 0.0
    """Waiting for a batch slot, before `seconds`."""
    first_token: float | None = None
    """From the request to the first token; None if no token came."""


@dataclass(frozen=True)
class GenerationTimes(Timings):
    """Timings, and what else of a generation is known only by who ran it: fields of `Generation`."""

    cached_tokens: int = 0
    estimated_speedup: float | None = None
