"""The places of a batch: which row has each of them, and how far the target and the drafter have come in its text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from speccompile.runtime.generation import Row


class Committed(NamedTuple):
    """What the caches of a slot hold when its row has left: tokens; read: how many of them the drafter has read."""

    tokens: list[int]
    read: int


@dataclass(eq=False)
class Slot:
    """A place, and the row that has it.

    Behind `length` nothing is ever read: a run in which the slot takes no part may write there. While a row decodes,
    all of its text is committed but the last token; and tokens before it that had no alternative, which it reads next.
    """

    index: int
    length: int = 0
    """Tokens whose rows are in the target's caches."""
    read: int = 0
    """Tokens that the drafter has read. Where it has states of its own and this is less than `length`, it is behind."""
    occupant: Row | None = None
    speculative: bool = False
    """Whether it wants drafts."""
    fixed: bool = False
    """Whether it wants all of them in every round, whatever they cost."""
    given: int = 0
    """Where its text is given to the target next, while it is being read."""
    is_read: bool = False
    """Whether the text has been read: it decodes, until it ends."""
    has_drafts: bool = False
    """Whether drafts behind its last token wait to be verified."""
    skipped: bool = False
    """Whether the drafter has missed nothing but rounds for which the host drafted."""
    paced: bool = False
    """Whether the pace knows of its text."""

    @property
    def row(self) -> Row:
        """The row; there must be one."""
        assert self.occupant is not None, f"slot {self.index} is free"
        return self.occupant

    @property
    def has_jumped(self) -> bool:
        """Whether its text goes on, behind what the target has chosen, by tokens that had no alternative."""
        return len(self.row) > self.length + 1

    @property
    def decodes(self) -> bool:
        """Whether it takes part in the next round."""
        return self.is_read and self.occupant is not None and self.occupant.active

    def admit(self, row: Row, reuse: int, read: int, *, speculative: bool, fixed: bool) -> None:
        """A row begins behind its first `reuse` tokens, which are committed, and of which the drafter has read some."""
        self.occupant, self.length, self.read, self.given = row, reuse, read, reuse
        self.speculative, self.fixed = speculative, fixed
        self.is_read = self.has_drafts = self.skipped = self.paced = False

    def release(self) -> Committed:
        """The row leaves. What it has lost to its end, or to a text before which it stops, is committed no longer."""
        text = self.row.text
        self.length = min(self.length, len(text))
        self.read = min(self.read, self.length)
        self.occupant, self.is_read, self.has_drafts = None, False, False
        return Committed(text[: self.length], self.read)


def lines_of(slots: Iterable[Slot]) -> range:
    """The least range that has all of these, of which there is one or more."""
    numbers = [slot.index for slot in slots]
    return range(min(numbers), max(numbers) + 1)


def alike(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Neighbours with texts of one length, which read side by side without padding."""
    found: list[list[Slot]] = []
    for slot in slots:
        last = found[-1][-1] if found else None
        if last is not None and slot.index == last.index + 1 and len(slot.row) == len(last.row):
            found[-1].append(slot)
        else:
            found.append([slot])
    return found
