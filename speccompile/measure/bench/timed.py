"""A generation with the times of its rounds: what a reader of the stream waits for."""

from dataclasses import dataclass
from typing import Any

from speccompile.runtime import Bundle, Generation
from speccompile.runtime.bundle import Prompt


@dataclass(frozen=True)
class Timed:
    """Times in seconds."""

    generation: Generation
    first_token: float
    """Of the prefill; the first draft is made in it."""
    gaps: tuple[float, ...]
    """From the end of the prefill, or of a round, to the end of the next round, which gives all its tokens at once."""

    @property
    def new_tokens(self) -> list[int]:
        """Of each round, in the order of `gaps`; the last gives no more than the end of the generation lets through."""
        lengths, left = self.generation.path_lengths, len(self.generation.token_ids) - 1
        return [*lengths[:-1], left - sum(lengths[:-1])] if lengths else []


def generate_timed(bundle: Bundle, prompt: Prompt, **options: Any) -> Timed:
    """As `Bundle.generate`, with the times."""
    generation = bundle.generate(prompt, **options)
    gaps = generation.round_seconds
    return Timed(generation, generation.seconds - sum(gaps), tuple(gaps))
