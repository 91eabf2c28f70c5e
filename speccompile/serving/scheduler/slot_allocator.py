"""Which row of the bundle a sequence gets, and what it finds there.

A row whose sequence has ended keeps what its caches hold. The next one whose prompt begins in the same way goes on from
there: its caches hold rows of that text, and what lies behind them is never read. Other rows can be copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from speccompile.serving.scheduler.scheduled import ScheduledSequence

SIMILAR = 0.1
"""Share of a prompt that a free row has to hold before it is chosen for it: below, the least recently used is."""


@dataclass
class SlotEntry:
    """A row of the bundle. served: the sequence that has it, None while it is free. text: what its caches hold, of a
    sequence that ended. used: when that was, counted in sequences."""

    served: ScheduledSequence | None = None
    text: list[int] = field(default_factory=list)
    salt: str = ""
    used: int = 0

    def cached_prefix_length(self, wanted: ScheduledSequence) -> int:
        """How many tokens of its prompt a sequence finds here. The last is always read: the next token follows."""
        return common_prefix_length(self._shared_with(wanted), wanted.row.prompt[:-1])

    def _shared_with(self, wanted: ScheduledSequence) -> list[int]:
        if self.served is None:
            return self.text if wanted.reuse and self.salt == wanted.salt else []
        if self.served.request is wanted.request or (
            self.served.reuse and wanted.reuse and self.served.salt == wanted.salt
        ):
            return self.served.cached_token_ids
        return []


class SlotAssignment(NamedTuple):
    """The row that a sequence gets. reuse: tokens of its prompt that are there, once `source` was copied into it, where
    that is not None."""

    slot: int
    reuse: int
    source: int | None = None


class SlotAllocator:
    """All rows of a bundle."""

    def __init__(self, count: int, *, can_reuse: bool = True) -> None:
        """can_reuse: whether a row may go on from the middle of what its caches hold."""
        self._seats = [SlotEntry() for _ in range(count)]
        self._can_reuse = can_reuse
        self._ended = 0

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def is_full(self) -> bool:
        return all(seat.served is not None for seat in self._seats)

    @property
    def running(self) -> list[ScheduledSequence]:
        """The sequences that have a row, in the order of the rows."""
        return [seat.served for seat in self._seats if seat.served is not None]

    def choose(self, wanted: ScheduledSequence) -> SlotAssignment:
        """Where a sequence finds most of its prompt: in the row that it gets, or in one to copy.

        Rounds run over the rows from the first that is taken to the last: they are kept together. Among rows that are
        equal in that, the longest beginning of the prompt decides, then which was not used for longest.
        """
        held = [self.cached_prefix_length(slot, wanted) for slot in range(len(self))]
        least = SIMILAR * len(wanted.row.prompt)

        def rank(slot: int) -> tuple[int, int, int]:
            return self._span(slot), -held[slot] if held[slot] >= least else 0, self._seats[slot].used

        chosen = min((slot for slot, seat in enumerate(self._seats) if seat.served is None), key=rank)
        source = max(range(len(held)), key=held.__getitem__)
        return SlotAssignment(chosen, held[source], source if held[source] > held[chosen] else None)

    def cached_prefix_length(self, slot: int, wanted: ScheduledSequence) -> int:
        """As `Seat.holds`, of one row."""
        return self._seats[slot].cached_prefix_length(wanted) if self._can_reuse else 0

    def assign(self, slot: int, served: ScheduledSequence) -> None:
        """The row is this sequence's."""
        self._seats[slot] = SlotEntry(served)
        served.slot = slot

    def release(self, served: ScheduledSequence, text: Sequence[int]) -> None:
        """The row is free; its caches hold this text."""
        assert served.slot is not None, "it has no row"
        self._ended += 1
        kept = list(text) if served.reuse else []
        self._seats[served.slot] = SlotEntry(None, kept, served.salt, self._ended)

    def _span(self, slot: int) -> int:
        """How many rows rounds run over once this one is taken too."""
        taken = [slot, *(place for place, seat in enumerate(self._seats) if seat.served is not None)]
        return max(taken) - min(taken) + 1


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # which is quick, and often so
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])
