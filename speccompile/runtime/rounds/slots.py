"""Batch slots: the sequence in each, and how much of it the target and the drafter have read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speccompile.errors import EngineError
from speccompile.runtime.adapters import LoadedAdapter
from speccompile.runtime.generation import SequenceState


class Committed(NamedTuple):
    """Content of a slot's caches after its sequence has left. tokens: committed tokens; drafter_length: how many of
    them the drafter has read."""

    tokens: list[int]
    drafter_length: int


class SlotContent(NamedTuple):
    """Content of a slot, with the number of tokens that recurrent states have read: more where a sequence was cut.
    adapter: with which they were read, None for the base. written: see `Slot`. source: key of the
    source that they were read with, "" without an encoder."""

    tokens: list[int]
    drafter_length: int
    target_position: int
    drafter_position: int
    slot: int = 0
    adapter: LoadedAdapter | None = None
    written: int = 0
    source: str = ""


@dataclass(eq=False)
class Slot:
    """A batch slot and its sequence.

    Cache entries from `committed_length` on are never read: a run without this slot may write there. While a sequence
    decodes, all its tokens are committed except the last one, and the forced tokens before it (those without an
    alternative), which the target reads next.
    """

    index: int
    committed_length: int = 0
    """Number of tokens in the target's caches."""
    drafter_length: int = 0
    """Number of tokens that the drafter has read. One with its own states lags while this is less than
    `committed_length`."""
    written: int = 0
    """End of the positions whose rows have been written: behind the committed tokens there are rejected drafts, and
    rows of a longer text. See `rings`."""
    sequence_or_none: SequenceState | None = None
    speculative: bool = False
    """True if the sequence is decoded with drafts."""
    fixed_draft_length: bool = False
    """True if it takes all drafts in every round, whatever they cost."""
    prefill_position: int = 0
    """Position of the next token to prefill."""
    is_prefilled: bool = False
    """True once the prefill is complete: the slot decodes until its sequence ends."""
    has_drafts: bool = False
    """True if drafts after its last token wait for verification."""
    lags_by_host_rounds: bool = False
    """True if the drafter has missed only rounds with host drafts."""
    is_tracked: bool = False
    """True if the draft-length policy knows of the sequence."""

    @property
    def sequence(self) -> SequenceState:
        """Return the sequence; the slot must not be free."""
        assert self.sequence_or_none is not None, f"slot {self.index} is free"
        return self.sequence_or_none

    @property
    def adapter_slot(self) -> int:
        """Return the slot of the sequence's adapter; 0 for the base, and in a free slot."""
        adapter = None if self.sequence_or_none is None else self.sequence_or_none.adapter
        return 0 if adapter is None else adapter.slot

    @property
    def has_forced_tokens(self) -> bool:
        """Return whether forced tokens, which had no alternative, follow the tokens that the target has read or
        chosen."""
        return len(self.sequence) > self.committed_length + 1

    @property
    def decodes(self) -> bool:
        """Return whether the slot takes part in the next round."""
        return self.is_prefilled and self.sequence_or_none is not None and self.sequence_or_none.is_active

    def admit(self, row: SequenceState, reuse: int, read: int, *, speculative: bool, fixed: bool) -> None:
        """Begin a sequence: its first `reuse` tokens are committed, and the drafter has read the first `read`
        tokens."""
        self.sequence_or_none, self.committed_length, self.drafter_length, self.prefill_position = (
            row,
            reuse,
            read,
            reuse,
        )
        self.speculative, self.fixed_draft_length = speculative, fixed
        self.is_prefilled = self.has_drafts = self.lags_by_host_rounds = self.is_tracked = False

    def release(self) -> Committed:
        """Remove the sequence and return its committed tokens, without those cut at its end or at a stop string."""
        text = self.sequence.identity
        self.committed_length = min(self.committed_length, len(text))
        self.drafter_length = min(self.drafter_length, self.committed_length)
        self.sequence_or_none, self.is_prefilled, self.has_drafts = None, False, False
        return Committed(text[: self.committed_length], self.drafter_length)


def slot_range(slots: Iterable[Slot]) -> range:
    """Return the smallest range of indices that contains all given slots, at least one."""
    numbers = [slot.index for slot in slots]
    return range(min(numbers), max(numbers) + 1)


def group_by_length(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Return groups of neighbouring slots with sequences of equal length, which prefill together without padding."""
    found: list[list[Slot]] = []
    for slot in slots:
        last = found[-1][-1] if found else None
        if last is not None and slot.index == last.index + 1 and len(slot.sequence) == len(last.sequence):
            found[-1].append(slot)
        else:
            found.append([slot])
    return found


def check_path(given: int, accepted: int, most: int) -> None:
    """Raise EngineError where a graph accepted fewer tokens than were given, so that a round makes no progress, or more
    than `most`, or wrote over the number that were given."""
    if not 0 <= given <= accepted <= most:
        raise EngineError(
            f"the graph accepted {accepted} of {most} tokens, {given} of them given", hint="build the bundle again"
        )


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two token lists."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # a fast check that often succeeds
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])
