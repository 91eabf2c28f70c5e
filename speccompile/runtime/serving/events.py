"""What a service tells whoever counts. Calls come from its thread, or from the one that asks; they must not block."""

from collections.abc import Sequence

from speccompile.runtime.generation import Generation


class Observer:
    """Does nothing; what counts overrides what it counts."""

    def refused(self, reason: str) -> None:
        """A request was not taken: `requests`, `tokens` (limits of the queue), `draining`."""

    def queued(self, waiting: int, running: int) -> None:
        """These counts are so now: requests that wait, and sequences that have a row."""

    def round(self, tokens: int, drafts: Sequence[int], accepted: Sequence[int]) -> None:
        """A round has ended in which so many new tokens came. drafts, accepted: of every row that took part."""

    def ended(self, generation: Generation) -> None:
        """A sequence has ended, for whatever reason."""
