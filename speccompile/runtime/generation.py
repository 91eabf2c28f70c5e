"""What is asked of a generation, how far each row is, and what comes out."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from speccompile.runtime.options import GREEDY, Sampling
from speccompile.runtime.text import Stream


@dataclass(frozen=True)
class Generation:
    """One finished generation. The first fields are what `speccompile generate --json` prints."""

    text: str | None
    """None where the bundle has no tokenizer."""
    token_ids: list[int]
    """New tokens only; an end-of-sequence token, if one came, is the last."""
    prompt_tokens: int
    rounds: int
    """Runs of `verify` after the prefill."""
    mean_accepted: float | None
    """New tokens per round, the bonus token included; the prefill's token is not counted. None without a round."""
    seconds: float
    tokens_per_second: float
    finish_reason: str
    """length | stop | capacity; of a service also cancelled | timeout"""
    mode: str
    """speculative | autoregressive"""
    engine: str
    exact: bool = True
    """Whether neither the bundle's method nor its engine, on this processor, changes what the target says, or only by
    chance: see the manifest, and `Bundle.exactness`."""
    kernels: str | None = None
    """The path of the kernels for the processor, "none" for ONNX Runtime's own; None for engines that run elsewhere."""
    seed: int | None = None
    """Of the random numbers, also where none was given; None for greedy decoding."""
    logprobs: list[float] | None = None
    """Of each new token, the natural logarithm of the target's own probability at temperature 1, before any penalty or
    limit. None where they were not asked for."""
    top_logprobs: list[list[tuple[int, float]]] | None = None
    """At the place of each new token, the most probable tokens and their log-probabilities, the best first. None where
    they were not asked for."""
    prefill_seconds: float = field(kw_only=True)
    verify_seconds: float = field(kw_only=True)
    draft_seconds: float = field(kw_only=True)
    path_lengths: list[int] = field(kw_only=True)
    """Tokens that each round verified, the bonus token included, before the end cut any off."""
    draft_lengths: list[int] = field(kw_only=True)
    """Drafts that each round verified, of a tree all its nodes; 0 where there were none."""
    round_seconds: list[float] = field(kw_only=True, default_factory=list)
    """From the end of the prefill, or of a round, to the end of the next: until its tokens come, all at once. What is
    left of `seconds` is the prefill, in which the first draft is made."""
    cached_tokens: int = field(kw_only=True, default=0)
    """Of the prompt, that were not read, because the row, or another, held them already."""
    queue_seconds: float = field(kw_only=True, default=0.0)
    """That it waited for a row, before `seconds`."""
    first_token_seconds: float | None = field(kw_only=True, default=None)
    """From when it was asked for to its first token; None where none came."""

    def to_json(self) -> dict[str, Any]:
        """The documented object of `generate --json`."""
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not f.kw_only}
        for name in ("logprobs", "top_logprobs"):
            if shown[name] is None:
                del shown[name]
        return shown


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The index at which two lists of tokens part, the shorter one's length where it is the other's beginning."""
    if list(one) == list(other):
        return None
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)


class Row:
    """One row of a batch: a prompt, its new tokens, and why it ended."""

    def __init__(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        capacity: int,
        eos_token_ids: Sequence[int],
        stream: Stream | None,
        sampling: Sampling = GREEDY,
        logprobs: bool = False,
    ) -> None:
        """capacity: the most tokens, prompt and new together, that the buffers hold. logprobs: whether to keep them."""
        self.prompt, self.stream, self.token_ids = list(prompt), stream, list[int]()
        self.room = min(max_new_tokens, capacity - len(self.prompt))
        self.reason_when_full = "length" if max_new_tokens <= capacity - len(self.prompt) else "capacity"
        self.finish_reason = "" if self.room else self.reason_when_full  # empty while the row is active
        self.sampling = sampling
        self.logprobs: list[float] | None = [] if logprobs else None
        self.pieces: list[str] = []
        self.path_lengths: list[int] = []  # the prefill's single token first
        self.draft_lengths: list[int] = []
        self.watched = stream is not None and stream.has_stop
        """Whether the text is decoded in every round. Once at the end costs far less."""
        self._eos = frozenset(eos_token_ids)
        self._n_read = 0

    @property
    def active(self) -> bool:
        return not self.finish_reason

    def __len__(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    @property
    def text(self) -> list[int]:
        """The prompt and the new tokens."""
        return self.prompt + self.token_ids

    def take(self, tokens: list[int], drafts: int, logprobs: Sequence[float] = ()) -> None:
        """Append the tokens of a round, up to whatever ends the generation first, and theirs of the logprobs.

        drafts: how many were verified.
        """
        self.path_lengths.append(len(tokens))
        self.draft_lengths.append(drafts)
        tokens = tokens[: self.room - len(self.token_ids)]
        if not self._eos.isdisjoint(tokens):
            end = next(place for place, token in enumerate(tokens) if token in self._eos)
            tokens, self.finish_reason = tokens[: end + 1], "stop"
        self.token_ids += tokens
        if self.logprobs is not None:
            self.logprobs += logprobs[: len(tokens)]
        if self.watched:
            self._read()
        if self.active and len(self.token_ids) == self.room:
            self.finish_reason = self.reason_when_full
        if not self.active:
            self._read()

    def _read(self) -> None:
        """Decode what has not been decoded."""
        if self.stream is None:
            return
        self.pieces.append(self.stream.push(self.token_ids[self._n_read :]))
        if self.stream.stopped:
            del self.token_ids[self.stream.kept :]
            if self.logprobs is not None:
                del self.logprobs[self.stream.kept :]
            self.finish_reason = "stop"
        self._n_read = len(self.token_ids)
        if not self.active:
            self.pieces.append(self.stream.finish())
            if self.stream.stopped:  # by the last character, whose other bytes never came
                self.finish_reason = "stop"
