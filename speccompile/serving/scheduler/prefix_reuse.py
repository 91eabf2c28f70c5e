"""Reuse of cached tokens when a sequence gets a batch slot: from a slot, a stored session, or the bundle's prefixes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from speccompile.runtime.rounds.slots import common_prefix_length
from speccompile.serving.scheduler.latency import LatencyEstimates
from speccompile.serving.scheduler.scheduled import ScheduledSequence
from speccompile.serving.scheduler.session_folder import KeptSessions, SessionFolder
from speccompile.serving.scheduler.slot_allocator import SlotAllocator, SlotAssignment

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Bundle
    from speccompile.runtime.rounds.decode_loop import DecodeLoop


class PrefixReuse:
    """Base class of `Scheduler` that finds the longest cached prefix of a sequence, and moves it to the assigned slot.
    Only the thread that owns the bundle may call it."""

    def __init__(self, bundle: "Bundle", clock: Callable[[], float], sessions: SessionFolder | None) -> None:
        """sessions: folder of texts for later services. Raise UsageError if the bundle does not support sessions."""
        self.bundle, self._clock, self._costs = bundle, clock, LatencyEstimates()
        self._slots = SlotAllocator(bundle.manifest.batch_size, self._usable)
        self._slots.hold(0, self._loop.hold_resumed())
        self._kept: KeptSessions | None = None
        if sessions is not None:
            has_source = bundle.manifest.source is not None
            self._kept = KeptSessions(sessions, bundle._sessions, self._serves, has_source=has_source)

    @property
    def _loop(self) -> "DecodeLoop":
        return self.bundle._loop  # not kept: a service that has ended must not hold a closed bundle's sessions

    def _usable(self, slot: int, count: int) -> int:
        """See `DecodeLoop.usable`; by the bundle, which lets go of its loop when it is closed."""
        return self._loop.usable(slot, count)

    def _serves(self, length: int, written: int, part: int) -> bool:
        return self._loop.serves(length, written, part)

    def _read_ahead(self, served: ScheduledSequence) -> None:
        """Begin to read the session file that the sequence continues, on another thread."""
        if self._kept is not None and served.reuse:
            self._kept.read_ahead(served.row.identity, served.sharing, self._slots.choose(served).reuse)

    def _has_read(self, *, wait: bool) -> bool:
        """Return whether all reads of files have ended. wait: wait until they have."""
        return self._kept is None or self._kept.has_read(wait=wait)

    def _prepare(self, served: ScheduledSequence, place: SlotAssignment) -> int:
        """Restore or copy the longest cached prefix into the assigned slot if that saves time. Return its tokens."""
        restored = self._restored(served, place)
        return self._copied(served, place) if restored is None else restored

    def _restored(self, served: ScheduledSequence, place: SlotAssignment) -> int | None:
        """Restore a longer prefix of the prompt, and of the tokens so far, than a slot holds, from the folder of
        sessions or from the bundle: of recurrent states only the whole text of a file. Return the number of cached
        tokens, None if none was restored."""
        text, found, held = served.row.identity, None, place.reuse
        if not served.reuse:
            return None
        if self._kept is not None and (found := self._kept.restore(text, served.sharing, place.slot, held)):
            held = common_prefix_length(found.tokens, text[:-1])
        if served.row.adapter is None:
            found = self.bundle._prefixes.restore(text, place.slot, held) or found
        if found is None:
            return None
        self._loop.hold(found)
        return self._loop.resumable(found, served.row, speculative=served.speculative)

    def _copied(self, served: ScheduledSequence, place: SlotAssignment) -> int:
        """Copy the slot that holds the longest prefix to the assigned slot if that pays. Return the number of cached
        tokens.

        Always copy for all sequences of a prompt except the first: a prompt is prefilled only once.
        """
        if place.source is None:
            return place.reuse
        own = self._slots.cached_prefix_length(place.slot, served)
        if not (served.index or self._costs.pays_to_copy(place.reuse - own)):
            return own
        start = self._clock()
        self._loop.copy(place.source, place.slot)
        self._costs.record_copy(self._clock() - start)
        return place.reuse

    def _keep_prompt(self, served: ScheduledSequence) -> None:
        """Keep a text that has just been read, where rounds move states beyond it."""
        if self._kept is not None and served.reuse and not self._loop.supports_prefix_reuse:
            assert served.slot is not None, "it has no row"
            self._kept.keep(served.sharing, self._loop.content(served.slot))

    def _keep_left(self, served: ScheduledSequence) -> None:
        """Keep the text of a sequence that has just left its slot."""
        if self._kept is not None and served.reuse and served.row.error is None:
            self._kept.keep(served.sharing, self._loop.left)

    def close(self) -> None:
        """Wait until the texts for the folder of sessions are written."""
        if self._kept is not None:
            self._kept.close()
