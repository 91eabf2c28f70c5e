"""One sequence of a request, from its submission to its end."""

from dataclasses import dataclass, field

from speccompile.runtime.adapters import adapter_key
from speccompile.runtime.generation import Generation, SequenceState
from speccompile.runtime.timings import GenerationTimes
from speccompile.serving.scheduler.request import OutputDelta, Request


@dataclass(eq=False)
class ScheduledSequence:
    """Sequence of a request. arrival_time: by the service's clock. reuse: whether cached tokens of other texts may
    serve it, and its own may serve others, with the same salt. priority: lower numbers get a slot earlier."""

    request: Request
    index: int
    row: SequenceState
    speculative: bool
    adaptive: bool
    client: str
    salt: str
    reuse: bool
    arrival_time: float
    priority: int = 0
    slot: int | None = None
    cached: int = 0
    start_time: float | None = None
    """Time at which it got its first batch slot."""
    last_token_time: float | None = None
    """Time of its last tokens."""
    first_token_time: float | None = None
    """Time of its first token."""
    gaps: list[float] = field(default_factory=list)
    """Seconds between the tokens of consecutive rounds."""
    verify: float = 0.0
    draft: float = 0.0
    """Seconds of verification and drafting in its rounds."""
    _shown: int = 0
    _told: int = 0
    _rounds: int = 0
    _emitted_rounds: int = 0

    @property
    def rank(self) -> tuple[int, float, int]:
        """Return its place among others: lower ones get a slot earlier."""
        return self.priority, self.arrival_time, self.index

    @property
    def is_head(self) -> bool:
        """Return whether it counts in the queue: as its request, or on its own once it has had a slot."""
        return self.index == 0 or self.start_time is not None

    def is_late(self, limit: float | None, now: float) -> bool:
        """Return whether it has waited for longer than `limit`. Once its request has begun, it never has."""
        return limit is not None and now - self.arrival_time > limit and not self.request.begun

    @property
    def sharing(self) -> tuple[str, str]:
        """Return what two sequences must have in common to share cached tokens: the salt with the source, and the
        adapter."""
        return self.salt + self.row.source_key, adapter_key(self.row.adapter)

    @property
    def cached_token_ids(self) -> list[int]:
        """Tokens in the caches after the prefill: all but the last token, which the next round reads."""
        return self.row.identity[:-1]

    @property
    def has_new_tokens(self) -> bool:
        """Return whether tokens have come since `record_tokens`."""
        return len(self.row.path_lengths) > self._rounds

    def record_tokens(self, now: float) -> tuple[int, float | None]:
        """Record new tokens. Return their number, and the seconds since the previous ones; None for the first."""
        fresh, gap, self._rounds = len(self.row.token_ids) - self._shown, None, len(self.row.path_lengths)
        if self.last_token_time is None:
            self.first_token_time = now
        else:
            gap = now - self.last_token_time
            self.gaps.append(gap)
        self.last_token_time = now
        return fresh, gap

    def emit(self, generation: Generation | None = None) -> None:
        """Deliver the output since the last call. generation: the finished generation, with the last delta."""
        row, start = self.row, self._shown
        text = "".join(row.pieces[self._told :])
        logprobs = None if row.logprobs is None else row.logprobs[start:]
        top = None if row.top_logprobs is None else row.top_logprobs[start:]
        self._shown, self._told = len(row.token_ids), len(row.pieces)
        drafts, accepted = self._last_round()
        tokens = row.token_ids[start:]
        self.request.deliver(OutputDelta(self.index, text, tokens, logprobs, generation, top, drafts, accepted))

    def _last_round(self) -> tuple[int, int]:
        """Return the draft tokens that the round since the last call verified and accepted; zeros without a round."""
        before, self._emitted_rounds = self._emitted_rounds, len(self.row.path_lengths)
        if self._emitted_rounds == before or not self.row.draft_lengths[-1]:
            return 0, 0
        return self.row.draft_lengths[-1], self.row.path_lengths[-1] - 1

    def spent(self, now: float) -> GenerationTimes:
        """Return its times until now."""
        begun = now if self.start_time is None else self.start_time
        return GenerationTimes(
            seconds=now - begun,
            prefill=0.0 if self.first_token_time is None else self.first_token_time - begun,
            rounds=self.gaps,
            verify=self.verify,
            draft=self.draft,
            cached_tokens=self.cached,
            queue=begun - self.arrival_time,
            first_token=None if self.first_token_time is None else self.first_token_time - self.arrival_time,
        )
