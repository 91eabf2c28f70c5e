"""Generation with the times of its rounds, which a reader of the stream waits for."""

from dataclasses import dataclass
from typing import Any

from speccompile.bundle.prompts import IMAGES
from speccompile.measure.bench.sources import source_keyword
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.text.prompts import Prompt


@dataclass(frozen=True)
class Timed:
    """Generation and its times, in seconds."""

    generation: Generation
    first_token: float
    """Time of the prefill, which includes the first draft."""
    gaps: tuple[float, ...]
    """Times from the end of the prefill or a round to the end of the next round, whose tokens arrive together."""

    @classmethod
    def of(cls, generation: Generation) -> "Timed":
        """Return a generation with its own times."""
        gaps = tuple(generation.round_seconds)
        return cls(generation, generation.seconds - sum(gaps), gaps)

    @property
    def new_tokens(self) -> list[int]:
        """Number of new tokens per round, in the order of `gaps`; the last round is cut at the generation's end."""
        lengths, left = self.generation.path_lengths, len(self.generation.token_ids) - 1
        return [*lengths[:-1], left - sum(lengths[:-1])] if lengths else []


def generate_timed(bundle: Bundle, prompt: Prompt | Features, **options: Any) -> Timed:
    """Run `Bundle.generate` and return its result with the times. prompt: for a target with an encoder its source,
    which it encodes every time; no drafter of such a target has persistent states. Pictures are encoded every time as
    well."""
    if options.get(IMAGES) and bundle.vision is not None:
        bundle.vision.encoder.forget()
    given: dict[str, Any] = source_keyword(bundle.manifest, prompt) or {"prompt": prompt}
    if bundle.manifest.source is not None:
        bundle.reset()
    return Timed.of(bundle.generate(**given, **options))
