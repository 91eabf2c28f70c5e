"""Preemption: which running sequence loses its batch slot to one that waits with a higher priority."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from speccompile.serving.scheduler.scheduled import ScheduledSequence

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Bundle


class Victims:
    """The sequences that can lose their slot, while all slots are taken."""

    def __init__(
        self,
        bundle: "Bundle",
        running: Sequence[ScheduledSequence],
        reading: ScheduledSequence | None,
        client_rows: int,
    ) -> None:
        """reading: sequence in its prefill; no other prefill begins before its end, unless in its place. client_rows:
        slots that one client may have at once."""
        self._of_client, self._client_rows = Counter(served.client for served in running), client_rows
        present = running if reading is None else [reading]
        self._present = [served for served in present if _can_go_on(bundle, served)]

    def of(self, first: ScheduledSequence) -> ScheduledSequence | None:
        """Return the sequence that loses its slot to one that waits: of those with the lowest priority the one that
        came last, and only one of the same client where that has all its slots. None if none has a lower priority."""
        own_only = self._of_client[first.client] >= self._client_rows
        lower = [served for served in self._present if served.priority > first.priority]
        allowed = [served for served in lower if served.client == first.client or not own_only]
        return max(allowed, key=lambda served: served.rank, default=None)

    def claim(self, first: ScheduledSequence) -> ScheduledSequence | None:
        """Return the sequence that loses its slot, see `of`, and let it lose it to no other one."""
        victim = self.of(first)
        if victim is not None:
            self._present.remove(victim)
        return victim


def _can_go_on(bundle: "Bundle", served: ScheduledSequence) -> bool:
    """Return whether a sequence gets the same tokens after an interruption, which costs it the drafts of a round: not
    where its drafts are drawn, or where it accepts drafts that the target would not choose."""
    drafting = bundle._loop.drafting
    return not served.speculative or (bundle.manifest.exact and drafting.allows_adaptive_length(served.row))
