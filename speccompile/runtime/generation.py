"""What is asked of a generation, how far each row is, and what comes out."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from speccompile.runtime.constraints import Constraint, Matcher
from speccompile.runtime.logprobs import Logprobs
from speccompile.runtime.options import GREEDY, SamplingParams
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer

FINISH_REASONS = ("length", "stop", "capacity", "cancelled", "timeout", "error")
"""Why a row has ended. The last two a service alone has."""

MODES = ("speculative", "autoregressive")


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
    """Of each new token, the natural logarithm of the target's own probability at temperature 1, before any penalty,
    limit or constraint. None where they were not asked for."""
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


@dataclass(frozen=True)
class GenerationTimes:
    """Where the time of one generation went, in seconds, and what it was spared: fields of `Generation`."""

    seconds: float
    prefill: float
    rounds: Sequence[float]
    verify: float = 0.0
    draft: float = 0.0
    cached_tokens: int = 0
    queue: float = 0.0
    first_token: float | None = None


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The index at which two lists of tokens part, the shorter one's length where it is the other's beginning."""
    if list(one) == list(other):
        return None
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)


class SequenceState:
    """One row of a batch: a prompt, its new tokens, and why it ended."""

    def __init__(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        capacity: int,
        eos_token_ids: Collection[int],
        stream: IncrementalDetokenizer | None,
        sampling: SamplingParams = GREEDY,
        logprobs: bool = False,
        top_logprobs: int = 0,
        constraint: Constraint | None = None,
    ) -> None:
        """capacity: the most tokens, prompt and new together, that the buffers hold. logprobs: whether to keep them;
        top_logprobs: of how many of the best tokens too, which keeps those of the new ones as well. constraint: what
        the new tokens may say."""
        self.prompt, self.stream, self.token_ids = list(prompt), stream, list[int]()
        self.max_new_tokens = min(max_new_tokens, capacity - len(self.prompt))
        self.length_finish_reason = "length" if max_new_tokens <= capacity - len(self.prompt) else "capacity"
        self.finish_reason = "" if self.max_new_tokens else self.length_finish_reason  # empty while the row is active
        self.sampling = sampling
        self.n_best = top_logprobs
        self.logprobs: list[float] | None = [] if logprobs or top_logprobs else None
        self.top_logprobs: list[list[tuple[int, float]]] | None = [] if top_logprobs else None
        self.pieces: list[str] = []
        self.path_lengths: list[int] = []  # the prefill's single token first
        self.draft_lengths: list[int] = []
        self.decodes_every_round = stream is not None and stream.has_stop
        """Whether the text is decoded in every round. Once at the end costs far less."""
        self._eos = frozenset(eos_token_ids)
        self.matcher = None if constraint is None else constraint.matcher(self._eos)
        """How far the new tokens are in what they may say."""
        self.min_forced_tokens = 0
        """The fewest tokens without an alternative that it takes at once, without asking the target; 0: it never does.
        It has the same tokens either way."""
        self._n_read = 0
        self.error: Exception | None = None
        """What went wrong with its tokens, and ended it; the rows beside it go on."""

    @property
    def is_active(self) -> bool:
        return not self.finish_reason

    def __len__(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    @property
    def all_token_ids(self) -> list[int]:
        """The prompt and the new tokens."""
        return self.prompt + self.token_ids

    def append_tokens(self, tokens: list[int], drafts: int, logprobs: Logprobs | None = None) -> None:
        """Append the tokens of a round, up to whatever ends the generation first, and theirs of the logprobs, which
        there are where the row keeps them.

        drafts: how many were verified. What goes wrong is `error`.
        """
        try:
            self._take(tokens, drafts, logprobs)
        except Exception as error:  # noqa: BLE001 -- whatever a tokenizer says
            self.error, self.finish_reason = error, "error"

    def _take(self, tokens: list[int], drafts: int, logprobs: Logprobs | None) -> None:
        self.path_lengths.append(len(tokens))
        self.draft_lengths.append(drafts)
        tokens = tokens[: self.max_new_tokens - len(self.token_ids)]
        if self.matcher is not None:
            tokens = tokens[: self.matcher.accept_tokens(tokens)]
        if not self._eos.isdisjoint(tokens):
            end = next(place for place, token in enumerate(tokens) if token in self._eos)
            tokens, self.finish_reason = tokens[: end + 1], "stop"
        self.token_ids += tokens
        if logprobs is not None:
            self._keep(logprobs, len(tokens))
        if self.matcher is not None and self.is_active:
            self._go_on(self.matcher)
        if self.decodes_every_round:
            self._read()
        if self.is_active and len(self.token_ids) == self.max_new_tokens:
            self.finish_reason = self.length_finish_reason
        if not self.is_active:
            self._read()

    def _go_on(self, matcher: "Matcher") -> None:
        """End where nothing can follow, and take what must."""
        self.finish_reason = matcher.end
        if self.is_active and self.min_forced_tokens:
            self.token_ids += matcher.forced_tokens(self.max_new_tokens - len(self.token_ids), self.min_forced_tokens)
            self.finish_reason = matcher.end

    def finish(self, reason: str) -> None:
        """Come to an end that others decide."""
        self.finish_reason = reason
        self._read()

    def _keep(self, logprobs: Logprobs, count: int) -> None:
        """Those of the first so many tokens of a round."""
        if self.logprobs is not None:
            self.logprobs += logprobs.chosen[:count]
        if self.top_logprobs is not None:
            self.top_logprobs += logprobs.best[:count]

    def _read(self) -> None:
        """Decode what has not been decoded."""
        if self.stream is None:
            return
        self.pieces.append(self.stream.push(self.token_ids[self._n_read :]))
        if self.stream.stopped:
            del self.token_ids[self.stream.kept :]
            for kept in (self.logprobs, self.top_logprobs):
                if kept is not None:
                    del kept[self.stream.kept :]
            self.finish_reason = "stop"
        self._n_read = len(self.token_ids)
        if not self.is_active:
            self.pieces.append(self.stream.finish())
            if self.stream.stopped:  # by the last character, whose other bytes never came
                self.finish_reason = "stop"

    def generation(
        self, spent: GenerationTimes, *, mode: str, engine: str, exact: bool, kernels: str | None
    ) -> Generation:
        """What came of it, once it has ended. spent: with the times of its rounds, or of more that began with them.
        Raises its `error`."""
        if self.error is not None:
            raise self.error
        n_new, rounds = len(self.token_ids), max(0, len(self.path_lengths) - 1)
        return Generation(
            text=None if self.stream is None else "".join(self.pieces),
            token_ids=self.token_ids,
            prompt_tokens=len(self.prompt),
            rounds=rounds,
            mean_accepted=(n_new - 1) / rounds if rounds else None,
            seconds=spent.seconds,
            tokens_per_second=n_new / spent.seconds if spent.seconds else 0.0,
            finish_reason=self.finish_reason,
            mode=mode,
            engine=engine,
            exact=exact,
            kernels=kernels,
            seed=self.sampling.shown_seed,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
            prefill_seconds=spent.prefill,
            verify_seconds=spent.verify,
            draft_seconds=spent.draft,
            path_lengths=self.path_lengths[1:],
            draft_lengths=self.draft_lengths[1:],
            round_seconds=list(spent.rounds[:rounds]),
            cached_tokens=spent.cached_tokens,
            queue_seconds=spent.queue,
            first_token_seconds=spent.first_token,
        )
