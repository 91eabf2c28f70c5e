"""Texts that the caches of batch slots hold, and which of their tokens serve other sequences: a part of the decode
loop."""

from collections.abc import Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.contract import COMPONENTS, has_recurrent_states
from speccompile.runtime.rounds.rings import RingReach
from speccompile.runtime.rounds.slots import Slot, SlotContent


class HeldTexts:
    """Batch slots, and the reach of the texts that they hold."""

    def __init__(self, manifest: Manifest) -> None:
        self._slots = [Slot(index) for index in range(manifest.batch_size)]
        self._recurrent = [part for part in COMPONENTS if has_recurrent_states(manifest.graphs, part)]
        self.rings = RingReach(manifest)
        self.supports_prefix_reuse = not self._recurrent
        """True if a sequence may continue from tokens that another has left, of the same source; recurrent states,
        which sum them up, prevent it."""
        self.left: SlotContent | None = None
        """Content of a slot's caches, of the sequence that left last; None if they may have changed."""
        self.resume: SlotContent | None = None
        """Content of the first slot's caches for the next sequence that is generated alone."""
        self.starts: dict[int, SlotContent] = {}
        """Slot -> content of its caches for the next sequences that are generated side by side."""

    def hold_resumed(self) -> list[int]:
        """Let the first slot hold what `resume` says, for admissions to it. Return its tokens; none where recurrent
        states prevent reuse."""
        resume, self.resume = self.resume, None
        if resume is None or resume.adapter is not None or resume.source or not self.supports_prefix_reuse:
            return []
        self.hold(resume)
        return resume.tokens

    def hold(self, content: SlotContent) -> None:
        """Record that the caches of a free slot hold `content`, for its next sequence."""
        own = self._slots[content.slot]
        assert own.sequence_or_none is None, f"slot {content.slot} is taken"
        own.committed_length, own.drafter_length = len(content.tokens), content.drafter_length
        own.written = content.written

    def content(self, slot: int) -> SlotContent:
        """Return what the caches of a slot hold of a sequence that goes on."""
        own = self._slots[slot]
        tokens, positions = own.sequence.identity[: own.committed_length], (own.committed_length, own.drafter_length)
        return SlotContent(tokens, min(positions), *positions, slot, own.sequence.adapter, own.written)

    def usable(self, slot: int, count: int) -> int:
        """Return how many of the first `count` tokens that a slot's caches hold serve another sequence: all or none."""
        return count if self.supports_prefix_reuse and self.rings.holds(self._slots[slot].written, count) else 0

    def serves(self, length: int, written: int, part: int) -> bool:
        """Return whether of caches that hold `length` tokens the first `part` serve a sequence. written: see `Slot`."""
        return part == length if self._recurrent else self.rings.holds(written, part)

    def note_written(self, slots: range, lengths: Sequence[int], width: int) -> None:
        """Note that a run has written rows in a range of slots, whatever was accepted: `width` each, from `lengths` of
        all slots on."""
        for slot in self._slots[slots.start : slots.stop]:
            slot.written = max(slot.written, lengths[slot.index] + width)

    def _active_slots(self) -> list[Slot]:
        """Return the slots with a sequence that has not ended."""
        return [slot for slot in self._slots if slot.sequence_or_none is not None and slot.sequence_or_none.is_active]

    def _decoding(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.decodes]
