"""State of each sequence while it is generated, and the finished generation."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from speccompile.bundle.sampling import GREEDY, SamplingParams
from speccompile.runtime.adapters import LoadedAdapter
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.audio.rules import RuleMatcher
from speccompile.runtime.constraints import Constraint, Matcher
from speccompile.runtime.generation_html import as_html, id_spans, text_spans
from speccompile.runtime.images.media import SequenceMedia
from speccompile.runtime.logprobs import Logprobs
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer
from speccompile.runtime.timings import GenerationTimes, Timings

FINISH_REASONS = ("length", "stop", "capacity", "cancelled", "timeout", "error")
"""Reasons why a sequence has ended. `cancelled` is the client's doing; only a service lets sequences time out."""

MODES = ("speculative", "autoregressive")

_SHOWN = 60
"""Maximum number of characters of a text in a representation."""
_CONTEXT = 64
"""Number of prompt tokens on which the text of the first new tokens depends, at most."""

_WHERE_THERE_IS_ONE = ("logprobs", "top_logprobs", "truncated_tokens", "cached_tokens", "encode_seconds")
JSON_NAMES = {"acceptance_length": "mean_accepted"}
"""Fields of `Generation` that have another name in JSON."""


@dataclass(frozen=True, repr=False)
class Generation:
    """One finished generation. The first fields are what `speccompile generate --json` prints. Notebooks show it with
    accepted draft tokens marked. Times are in seconds."""

    text: str | None
    """None if the bundle has no tokenizer."""
    token_ids: list[int]
    """New tokens only; an end-of-sequence token, if there is one, is the last."""
    prompt_tokens: int
    rounds: int
    """Runs of `verify` after the prefill."""
    acceptance_length: float | None
    """Mean number of new tokens per round, the bonus token included; the prefill's token is not counted. None without a
    round."""
    seconds: float
    tokens_per_second: float
    finish_reason: str
    """length | stop | capacity | cancelled (by its client); in a service also timeout"""
    mode: str
    """speculative | autoregressive"""
    engine: str
    exact: bool = True
    """True if neither the bundle's drafting method nor its engine, on this processor, changes the target's output,
    except by chance: see the manifest, and `Bundle.exactness`."""
    kernels: str | None = None
    """Code path of the kernels for the processor, "none" for ONNX Runtime's own; None for engines on other devices."""
    seed: int | None = None
    """Seed of the random numbers, including one that the system chose; None for greedy decoding."""
    logprobs: list[float] | None = None
    """Natural logarithm of the target's own probability of each new token at temperature 1, before any penalty, limit
    or constraint. None unless requested."""
    top_logprobs: list[list[tuple[int, float]]] | None = None
    """Most probable tokens at the position of each new token with their log-probabilities, the best first. None unless
    requested."""
    prefill_seconds: float = field(kw_only=True)
    verify_seconds: float = field(kw_only=True)
    draft_seconds: float = field(kw_only=True)
    path_lengths: list[int] = field(kw_only=True)
    """Number of tokens that each round accepted, the bonus token included, before the end cut any off."""
    draft_lengths: list[int] = field(kw_only=True)
    """Number of drafts that each round verified, for a tree all nodes; 0 for a round without drafts."""
    round_starts: list[int] = field(kw_only=True, default_factory=list)
    """Index in `token_ids` of the first token of each round; the number of all, where the end cut the round off."""
    round_seconds: list[float] = field(kw_only=True, default_factory=list)
    """Seconds from the end of the prefill or of a round to the end of the next round, when its tokens come all at once.
    The rest of `seconds` is the prefill, which also makes the first draft."""
    truncated_tokens: int = field(kw_only=True, default=0)
    """Number of tokens that the prompt lost at its start, by the option `truncate`. In JSON where it is not 0."""
    encode_seconds: float | None = field(kw_only=True, default=None)
    """Seconds of encoding the prompt's pictures, part of the prefill. In JSON, and a number, where it has any."""
    cached_tokens: int = field(kw_only=True, default=0)
    """Number of prompt tokens that a batch slot, a session or a shipped prefix held. In JSON where it is not 0."""
    queue_seconds: float = field(kw_only=True, default=0.0)
    """Seconds of waiting for a batch slot, before `seconds`."""
    first_token_seconds: float | None = field(kw_only=True, default=None)
    """Seconds from the request to the first token; None if no token came."""
    estimated_speedup: float | None = field(kw_only=True, default=None)
    """Speedup over autoregressive rounds, without the prefill, by what such rounds and these rounds typically cost on
    this machine; None if no round drafted, of several sequences, and where the costs are not measured."""

    @property
    def mean_accepted(self) -> float | None:
        """Return the acceptance length, by its name in JSON and in earlier versions."""
        return self.acceptance_length

    @property
    def timings(self) -> Timings:
        """Return all times, which are fields of this object as well, in one."""
        return Timings(
            self.seconds, self.prefill_seconds, self.round_seconds, self.verify_seconds, self.draft_seconds,
            self.encode_seconds, self.queue_seconds, self.first_token_seconds,
        )  # fmt: skip

    @property
    def draft_mask(self) -> list[bool]:
        """Return for each new token whether it is a draft token, which the target accepted."""
        mask = [False] * len(self.token_ids)
        for start, length, drafts in zip(self.round_starts, self.path_lengths, self.draft_lengths, strict=False):
            end = min(start + length - 1, len(mask)) if drafts else start
            mask[start:end] = [True] * (end - start)
        return mask

    def __repr__(self) -> str:
        shown = repr(self.token_ids if self.text is None else self.text)
        return f"<Generation: {', '.join(self._facts())}: {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '..'}>"

    def _repr_html_(self) -> str:
        if self.text is None:
            return as_html(self._facts(), id_spans(self.token_ids, self.draft_mask))
        if self._detokenizer is None:  # it comes from another process
            return as_html(self._facts(), [(self.text, False)])
        return as_html(self._facts(), text_spans(self.text, self.token_ids, self.draft_mask, self._detokenizer()))

    def _facts(self) -> list[str]:
        facts = [f"{len(self.token_ids)} tokens", f"{self.tokens_per_second:.1f} tokens/s"]
        if self.acceptance_length is not None:
            facts.append(f"acceptance length {self.acceptance_length:.2f}")
        if self.estimated_speedup is not None:
            facts.append(f"{self.estimated_speedup:.2f}x autoregressive (estimated)")
        return [*facts, self.mode, f"finish reason {self.finish_reason}"]

    _detokenizer: ClassVar[Any] = None
    """Function that returns a detokenizer for the new tokens. No field: it is neither compared nor pickled."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, for pickles and copies."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def to_json(self) -> dict[str, Any]:
        """Return the documented JSON object of `generate --json`."""
        fields = [f.name for f in dataclasses.fields(self) if not f.kw_only]
        shown = {JSON_NAMES.get(name, name): getattr(self, name) for name in fields}
        shown |= {"truncated_tokens": self.truncated_tokens or None, "cached_tokens": self.cached_tokens or None}
        shown |= {"encode_seconds": self.encode_seconds}
        return {name: each for name, each in shown.items() if each is not None or name not in _WHERE_THERE_IS_ONE}


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first index at which two lists of tokens differ: the shorter one's length if it is a prefix of the
    other, None if they are equal."""
    if list(one) == list(other):
        return None
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)


def token_at(tokens: Sequence[int], index: int) -> int | None:
    """Return the token at an index, None behind the last."""
    return tokens[index] if index < len(tokens) else None


class SequenceState:
    """State of one sequence: a prompt, its new tokens, and its finish reason."""

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
        """capacity: maximum number of tokens, prompt and new ones, that the buffers hold. logprobs: whether to keep
        them; top_logprobs: number of most probable tokens to keep at each position, which keeps `logprobs` too.
        constraint: the grammar of the new tokens."""
        self.prompt, self.stream, self.token_ids, self._n_read = list(prompt), stream, list[int](), 0
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
        self.round_starts: list[int] = []
        self.decodes_every_round = stream is not None and stream.has_stop  # once at the end costs far less
        self._eos = frozenset(eos_token_ids)
        self.matcher: Matcher | RuleMatcher | None = None if constraint is None else constraint.matcher(self._eos)
        self.min_forced_tokens = 0
        """Minimum number of forced tokens (those without an alternative) that are appended at once, without asking the
        target; 0 for never. The tokens are the same either way."""
        self.truncated_tokens = 0  # tokens that the prompt lost at its start
        self.adapter: LoadedAdapter | None = None  # of the target
        self.media: SequenceMedia | None = None  # pictures of the prompt
        self.source: list[int] | Features | None = None
        """Tokens of the source, or features of a sound, of a target with an encoder; and its hash."""
        self.source_key = ""
        self.error: Exception | None = None
        """Error in processing the tokens, which ended this sequence; other sequences of the batch go on."""

    @property
    def is_active(self) -> bool:
        return not self.finish_reason

    def __len__(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    @property
    def all_token_ids(self) -> list[int]:
        """Return the prompt and new tokens."""
        return self.prompt + self.token_ids

    @property
    def prompt_identity(self) -> list[int]:
        """Prompt, with ids of their content for pictures: equal for prompts that leave equal caches alone."""
        return self.prompt if self.media is None else self.media.identity

    @property
    def identity(self) -> list[int]:
        """Return the prompt and new tokens, with ids of their content for pictures."""
        return self.prompt_identity + self.token_ids

    def append_tokens(self, tokens: list[int], drafts: int, logprobs: Logprobs | None = None) -> None:
        """Append the tokens of a round, and their logprobs if the sequence keeps these, up to whatever ends the
        generation first.

        drafts: number of drafts that were verified. An exception becomes `error`.
        """
        try:
            self._take(tokens, drafts, logprobs)
        except Exception as error:  # noqa: BLE001 -- a tokenizer may raise anything
            self.error, self.finish_reason = error, "error"

    def _take(self, tokens: list[int], drafts: int, logprobs: Logprobs | None) -> None:
        self.path_lengths.append(len(tokens))
        self.draft_lengths.append(drafts)
        self.round_starts.append(len(self.token_ids))
        tokens = tokens[: self.max_new_tokens - len(self.token_ids)]
        if self.matcher is not None:
            tokens = tokens[: self.matcher.accept_tokens(tokens)]
        self._add(tokens)
        if logprobs is not None:
            self._keep(logprobs, len(self.token_ids) - self.round_starts[-1])
        if self.matcher is not None and self.is_active:
            self._go_on(self.matcher)
        if self.decodes_every_round:
            self._read()
        if self.is_active and len(self.token_ids) == self.max_new_tokens:
            self.finish_reason = self.length_finish_reason
        if not self.is_active:
            self._read()

    def _add(self, tokens: list[int]) -> None:
        """Add tokens, up to the first that ends the sequence."""
        if not self._eos.isdisjoint(tokens):
            end = next(place for place, token in enumerate(tokens) if token in self._eos)
            tokens, self.finish_reason = tokens[: end + 1], "stop"
        self.token_ids += tokens

    def _go_on(self, matcher: Matcher | RuleMatcher) -> None:
        """End the sequence if no token can follow, and append forced tokens."""
        self.finish_reason = matcher.end
        if self.is_active and self.min_forced_tokens:
            forced = matcher.forced_tokens(self.max_new_tokens - len(self.token_ids), self.min_forced_tokens)
            self.finish_reason = matcher.end
            self._add(forced)

    def finish(self, reason: str) -> None:
        """End the sequence for an external reason."""
        self.finish_reason = reason
        self._read()

    def _keep(self, logprobs: Logprobs, count: int) -> None:
        """Keep the log-probabilities of the first `count` tokens of a round."""
        if self.logprobs is not None:
            self.logprobs += logprobs.chosen[:count]
        if self.top_logprobs is not None:
            self.top_logprobs += logprobs.best[:count]

    def _read(self) -> None:
        """Decode the tokens that have not been decoded."""
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
            if self.stream.stopped:  # by the last character, which is incomplete
                self.finish_reason = "stop"

    def generation(
        self, spent: GenerationTimes, *, mode: str, engine: str, exact: bool, kernels: str | None
    ) -> Generation:
        """Return the finished generation. spent: its times; `spent.rounds` may go on with rounds after its end. Raise
        `error` if there is one."""
        if self.error is not None:
            raise self.error
        n_new, rounds = len(self.token_ids), max(0, len(self.path_lengths) - 1)
        generation = Generation(
            text=None if self.stream is None else "".join(self.pieces),
            token_ids=self.token_ids,
            prompt_tokens=len(self.prompt),
            rounds=rounds,
            acceptance_length=(n_new - 1) / rounds if rounds else None,
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
            round_starts=self.round_starts[1:],
            round_seconds=list(spent.rounds[:rounds]),
            truncated_tokens=self.truncated_tokens,
            encode_seconds=None if self.media is None else self.media.encode_seconds,
            cached_tokens=spent.cached_tokens,
            queue_seconds=spent.queue,
            first_token_seconds=spent.first_token,
            estimated_speedup=spent.estimated_speedup,
        )
        if self.stream is not None:
            anew = partial(self.stream.restarted, self.prompt[-_CONTEXT:])
            object.__setattr__(generation, "_detokenizer", anew)  # the object is frozen for its readers
        return generation
