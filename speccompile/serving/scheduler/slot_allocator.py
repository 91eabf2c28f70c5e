"""Batch slots of a bundle: the slot that a sequence gets, and the cached prefix of its prompt.

A slot whose sequence has ended keeps its cached tokens. The next sequence whose prompt has the same prefix continues
from there: cache entries after the prefix are never read. The caches of other slots can be copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from speccompile.runtime.rounds.slots import common_prefix_length
from speccompile.serving.scheduler.scheduled import ScheduledSequence

SIMILAR = 0.1
"""Minimum share of a prompt that a free slot must hold to be preferred; below it the least recently used slot is."""


@dataclass
class SlotEntry:
    """State of one batch slot. served: the sequence that occupies it, or None. text: cached token ids of the last
    sequence; sharing: that sequence's. used: sequence counter at its end, for least-recently-used reuse."""

    served: ScheduledSequence | None = None
    text: list[int] = field(default_factory=list)
    sharing: tuple[str, str] = ("", "")
    used: int = 0

    def cached_prefix_length(self, wanted: ScheduledSequence) -> int:
        """Return the number of cached tokens of its prompt, and of its tokens so far, here. The last one is always
        read: it gives the next token."""
        return common_prefix_length(self._shared_with(wanted), wanted.cached_token_ids)

    def _shared_with(self, wanted: ScheduledSequence) -> list[int]:
        if self.served is None:
            return self.text if wanted.reuse and self.sharing == wanted.sharing else []
        if self.served.request is wanted.request or (
            self.served.reuse and wanted.reuse and self.served.sharing == wanted.sharing
        ):
            return self.served.cached_token_ids
        return []


class SlotAssignment(NamedTuple):
    """Batch slot of a sequence. reuse: number of its prompt tokens that the slot holds, once the caches of slot
    `source` are copied to it, if that is not None."""

    slot: int
    reuse: int
    source: int | None = None


class SlotAllocator:
    """All batch slots of a bundle."""

    def __init__(self, count: int, usable: Callable[[int, int], int] = lambda slot, tokens: tokens) -> None:
        """usable: how many of the first tokens that a slot's caches hold serve another sequence, of (slot, tokens)."""
        self._entries = [SlotEntry() for _ in range(count)]
        self._usable = usable
        self._ended = 0

    def __len__(self) -> int:
        return len(self._entries)

    def hold(self, slot: int, text: list[int]) -> None:
        """Record that the caches of a free slot hold `text`."""
        self._entries[slot].text = text

    @property
    def is_full(self) -> bool:
        return all(entry.served is not None for entry in self._entries)

    @property
    def running(self) -> list[ScheduledSequence]:
        """Return sequences that have a slot, in the order of the slots."""
        return [entry.served for entry in self._entries if entry.served is not None]

    def choose(self, wanted: ScheduledSequence) -> SlotAssignment:
        """Return a free slot for a sequence, and the slot that holds the longest prefix of its prompt, to copy if it is
        another.

        Rounds run over the range from the first occupied slot to the last: the choice keeps it short. Among slots that
        are equal in that, the longest prefix decides, then the least recent use.
        """
        held = [self.cached_prefix_length(slot, wanted) for slot in range(len(self))]
        least = SIMILAR * len(wanted.row)

        def rank(slot: int) -> tuple[int, int, int]:
            return self._span(slot), -held[slot] if held[slot] >= least else 0, self._entries[slot].used

        chosen = min((slot for slot, entry in enumerate(self._entries) if entry.served is None), key=rank)
        source = max(range(len(held)), key=held.__getitem__)
        return SlotAssignment(chosen, held[source], source if held[source] > held[chosen] else None)

    def cached_prefix_length(self, slot: int, wanted: ScheduledSequence) -> int:
        """See `SlotEntry.cached_prefix_length`; 0 if nothing can be reused."""
        return self._usable(slot, self._entries[slot].cached_prefix_length(wanted))

    def longest_prefix(self, wanted: ScheduledSequence) -> int:
        """Return the largest number of cached tokens of its prompt that a slot holds."""
        return max(self.cached_prefix_length(slot, wanted) for slot in range(len(self)))

    def assign(self, slot: int, served: ScheduledSequence) -> None:
        """Assign the slot to a sequence."""
        self._entries[slot] = SlotEntry(served)
        served.slot = slot

    def release(self, served: ScheduledSequence, text: Sequence[int]) -> None:
        """Free the slot of a sequence; its caches hold `text`."""
        assert served.slot is not None, "it has no row"
        self._ended += 1
        kept = list(text) if served.reuse else []
        self._entries[served.slot] = SlotEntry(None, kept, served.sharing, self._ended)

    def clear(self) -> None:
        """Free all slots, and forget what they hold."""
        self._entries = [SlotEntry() for _ in self._entries]

    def _span(self, slot: int) -> int:
        """Return the number of slots in the range of a round once this slot is occupied too."""
        taken = [slot, *(place for place, entry in enumerate(self._entries) if entry.served is not None)]
        return max(taken) - min(taken) + 1
