"""The places of a batch: which row has each of them, and how far the target and the drafter have come in its text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from speccompile.runtime.generation import SequenceState


class Committed(NamedTuple):
    """What the caches of a slot hold when its row has left: tokens; read: how many of them the drafter has read."""

    tokens: list[int]
    drafter_length: int


@dataclass(eq=False)
class Slot:
    """A place, and the row that has it.

    Behind `length` nothing is ever read: a run in which the slot takes no part may write there. While a row decodes,
    all of its text is committed but the last token; and tokens before it that had no alternative, which it reads next.
    """

    index: int
    committed_length: int = 0
    """Tokens whose rows are in the target's caches."""
    drafter_length: int = 0
    """Tokens that the drafter has read. Where it has states of its own and this is less than `length`, it is behind."""
    sequence_or_none: SequenceState | None = None
    speculative: bool = False
    """Whether it wants drafts."""
    fixed_draft_length: bool = False
    """Whether it wants all of them in every round, whatever they cost."""
    prefill_position: int = 0
    """Where its text is given to the target next, while it is being read."""
    is_prefilled: bool = False
    """Whether the text has been read: it decodes, until it ends."""
    has_drafts: bool = False
    """Whether drafts behind its last token wait to be verified."""
    lags_by_host_rounds: bool = False
    """Whether the drafter has missed nothing but rounds for which the host drafted."""
    is_tracked: bool = False
    """Whether the pace knows of its text."""

    @property
    def sequence(self) -> SequenceState:
        """The row; there must be one."""
        assert self.sequence_or_none is not None, f"slot {self.index} is free"
        return self.sequence_or_none

    @property
    def has_forced_tokens(self) -> bool:
        """Whether its text goes on, behind what the target has chosen, by tokens that had no alternative."""
        return len(self.sequence) > self.committed_length + 1

    @property
    def decodes(self) -> bool:
        """Whether it takes part in the next round."""
        return self.is_prefilled and self.sequence_or_none is not None and self.sequence_or_none.is_active

    def admit(self, row: SequenceState, reuse: int, read: int, *, speculative: bool, fixed: bool) -> None:
        """A row begins behind its first `reuse` tokens, which are committed, and of which the drafter has read some."""
        self.sequence_or_none, self.committed_length, self.drafter_length, self.prefill_position = (
            row,
            reuse,
            read,
            reuse,
        )
        self.speculative, self.fixed_draft_length = speculative, fixed
        self.is_prefilled = self.has_drafts = self.lags_by_host_rounds = self.is_tracked = False

    def release(self) -> Committed:
        """The row leaves. What it has lost to its end, or to a text before which it stops, is committed no longer."""
        text = self.sequence.all_token_ids
        self.committed_length = min(self.committed_length, len(text))
        self.drafter_length = min(self.drafter_length, self.committed_length)
        self.sequence_or_none, self.is_prefilled, self.has_drafts = None, False, False
        return Committed(text[: self.committed_length], self.drafter_length)


def slot_range(slots: Iterable[Slot]) -> range:
    """The least range that has all of these, of which there is one or more."""
    numbers = [slot.index for slot in slots]
    return range(min(numbers), max(numbers) + 1)


def group_by_length(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Neighbours with texts of one length, which read side by side without padding."""
    found: list[list[Slot]] = []
    for slot in slots:
        last = found[-1][-1] if found else None
        if last is not None and slot.index == last.index + 1 and len(slot.sequence) == len(last.sequence):
            found[-1].append(slot)
        else:
            found.append([slot])
    return found
