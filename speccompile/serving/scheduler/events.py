"""What a service tells whoever counts. Calls come from its thread, or from the one that asks; they must not block, and
what they raise ends the service."""

from collections.abc import Sequence

from speccompile.runtime.generation import Generation


class Observer:
    """Does nothing; what counts overrides what it counts."""

    def refused(self, reason: str) -> None:
        """A request was not taken, or waited for too long: `requests`, `tokens` (limits of the queue), `queue_seconds`,
        `draining`, `failed` (the engine had failed before)."""

    def queued(self, waiting: int, running: int) -> None:
        """These counts are so now: requests that wait, and sequences that have a row."""

    def admitted(self, prompt_tokens: int, cached_tokens: int, queue_seconds: float) -> None:
        """A sequence has got a row, after so long. cached_tokens: of its prompt, that need not be read, because an
        earlier text or another row begins in the same way."""

    def first_token(self, seconds: float) -> None:
        """The first token of a sequence came so long after it was asked for."""

    def inter_token_latency(self, seconds: float, tokens: int) -> None:
        """So many more tokens of one sequence have come, all at once, so long after those before them."""

    def round(self, tokens: int, drafts: Sequence[int], accepted: Sequence[int]) -> None:
        """A round has ended in which so many new tokens came. drafts, accepted: of every row that took part; accepted
        drafts are the first ones of a chain, and of a tree those of one branch from its root on."""

    def stepped(self, tokens: int, used: float) -> None:
        """The engine was given so many tokens of prompts and gave so many new ones, both added, since the last call.
        used: share of the room in all rows that running sequences fill."""

    def ended(self, generation: Generation) -> None:
        """A sequence has ended, for whatever reason but an error."""

    def failed(self, error: Exception) -> None:
        """A request has ended with an error."""
