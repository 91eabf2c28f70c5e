"""Transcripts: the text of a sound, its segments, and how it was written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from speccompile.runtime.generation import Generation
from speccompile.runtime.transcription.segments import Segment


@dataclass(frozen=True)
class Transcript:
    """Text of a sound. text: without spaces around it, None without a tokenizer; language: its name, None of
    a target for one language; task: transcribe or translate; generation: how it was written, of several windows
    together; segments: its parts, one for each window without times; seconds: duration of the sound."""

    text: str | None
    language: str | None
    task: str
    generation: Generation
    segments: tuple[Segment, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the object of `speccompile transcribe --json`."""
        parts = {"duration": round(self.seconds, 3), "segments": [each.to_json() for each in self.segments]}
        shown = self.generation.to_json() | parts
        shown.pop("cached_tokens", None)  # what windows kept of those before
        return shown | {"text": self.text, "language": self.language, "task": self.task}


_SUMS = ("rounds", "seconds", "prefill_seconds", "verify_seconds", "draft_seconds", "cached_tokens")
_LISTS = ("token_ids", "path_lengths", "draft_lengths", "round_seconds")
_KEPT = ("logprobs", "top_logprobs")
"""Lists that are None unless they were asked for."""


def joined(generations: Sequence[Generation]) -> Generation:
    """Return several generations as one, at least one: tokens and rounds in order, times added up."""
    first = generations[0]
    if len(generations) == 1:
        return first
    sums: Any = {name: sum(getattr(each, name) for each in generations) for name in _SUMS}
    names = [*_LISTS, *(name for name in _KEPT if getattr(first, name) is not None)]
    lists: Any = {name: [item for each in generations for item in getattr(each, name)] for name in names}
    offsets = accumulate((len(each.token_ids) for each in generations[:-1]), initial=0)
    starts = [start + offset for each, offset in zip(generations, offsets, strict=True) for start in each.round_starts]
    count, rounds = len(lists["token_ids"]), sums["rounds"]
    texts = [each.text for each in generations]
    return replace(
        first, **sums, **lists, round_starts=starts,
        text=None if None in texts else "".join(text for text in texts if text is not None),
        acceptance_length=(count - len(generations)) / rounds if rounds else None,
        tokens_per_second=count / sums["seconds"] if sums["seconds"] else 0.0,
        finish_reason=generations[-1].finish_reason, estimated_speedup=None,
    )  # fmt: skip
