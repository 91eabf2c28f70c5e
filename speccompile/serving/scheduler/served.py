"""One sequence of a request, from when it was asked for to its end."""

from dataclasses import dataclass, field

from speccompile.runtime.generation import Generation, Row, Spent
from speccompile.serving.scheduler.request import Piece, Request


@dataclass(eq=False)
class Served:
    """asked: when, by the service's clock. reuse: whether what rows hold of other texts may serve it, and its own may
    serve others, of the same salt."""

    request: Request
    index: int
    row: Row
    speculative: bool
    adaptive: bool
    client: str
    salt: str
    reuse: bool
    asked: float
    slot: int | None = None
    cached: int = 0
    begun: float | None = None
    """When it got its row."""
    last: float | None = None
    """When its last tokens came."""
    first: float | None = None
    """When its first did."""
    gaps: list[float] = field(default_factory=list)
    """Seconds from one round's tokens to the next one's."""
    verify: float = 0.0
    draft: float = 0.0
    """Seconds of the rounds in which it took part."""
    _shown: int = 0
    _told: int = 0
    _rounds: int = 0

    @property
    def held(self) -> list[int]:
        """What the caches hold, once the prompt is read: all but the last token, which the next round is given."""
        return self.row.text[:-1]

    @property
    def has_fresh(self) -> bool:
        """Whether tokens have come since `take`."""
        return len(self.row.path_lengths) > self._rounds

    def take(self, now: float) -> tuple[int, float | None]:
        """Tokens have come. Returns how many, and seconds since those before them; None for the first."""
        fresh, gap, self._rounds = len(self.row.token_ids) - self._shown, None, len(self.row.path_lengths)
        if self.last is None:
            self.first = now
        else:
            gap = now - self.last
            self.gaps.append(gap)
        self.last = now
        return fresh, gap

    def give(self, generation: Generation | None = None) -> None:
        """Hand over what has come since the last time. generation: the whole, where that was the last."""
        row, start = self.row, self._shown
        text = "".join(row.pieces[self._told :])
        logprobs = None if row.logprobs is None else row.logprobs[start:]
        top = None if row.top_logprobs is None else row.top_logprobs[start:]
        self._shown, self._told = len(row.token_ids), len(row.pieces)
        self.request.put(Piece(self.index, text, row.token_ids[start:], logprobs, generation, top))

    def spent(self, now: float) -> Spent:
        """Where its time went, until now."""
        begun = now if self.begun is None else self.begun
        return Spent(
            seconds=now - begun,
            prefill=0.0 if self.first is None else self.first - begun,
            rounds=self.gaps,
            verify=self.verify,
            draft=self.draft,
            cached_tokens=self.cached,
            queue=begun - self.asked,
            first_token=None if self.first is None else self.first - self.asked,
        )
