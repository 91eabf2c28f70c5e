"""Events of a service, for metrics. Calls come from the service's thread, or from the thread that submits; they must
not block, and an exception from them ends the service."""

from collections.abc import Sequence

from speccompile.runtime.generation import Generation


class Observer:
    """Observer that does nothing. Subclasses override the events that they count."""

    def refused(self, reason: str) -> None:
        """Record a refused request, or one that waited for too long: `requests`, `tokens` (limits of the queue),
        `queue_seconds`, `draining`, `failed` (the engine had failed before)."""

    def queued(self, waiting: int, running: int) -> None:
        """Record the present numbers of waiting requests and of sequences that have a batch slot."""

    def admitted(self, prompt_tokens: int, cached_tokens: int, queue_seconds: float) -> None:
        """Record that a sequence has got a batch slot, after `queue_seconds`. cached_tokens: prompt tokens that need
        not be read, because an earlier text or another slot begins in the same way."""

    def preempted(self) -> None:
        """Record that a sequence has lost its batch slot to one of higher priority, and waits again. No second call of
        `admitted` follows."""

    def first_token(self, seconds: float) -> None:
        """Record the time from the request to the first token of a sequence."""

    def inter_token_latency(self, seconds: float, tokens: int) -> None:
        """Record the inter-token latency: a round gave a sequence `tokens` tokens, `seconds` after the previous
        ones."""

    def round(self, tokens: int, drafts: Sequence[int], accepted: Sequence[int]) -> None:
        """Record a round that gave `tokens` new tokens. drafts, accepted: numbers for every slot that took part;
        accepted drafts are the first ones of a chain, and in a tree those of one branch from its root on."""

    def stepped(self, tokens: int, used: float) -> None:
        """Record a step of the engine: prompt tokens read plus new tokens since the last call. used: share of the
        capacity of all slots that running sequences fill."""

    def ended(self, generation: Generation) -> None:
        """Record that a sequence has ended for any reason except an error."""

    def failed(self, error: Exception) -> None:
        """Record that a request has ended with an error."""
