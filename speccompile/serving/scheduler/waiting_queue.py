"""Queue of sequences that wait for a batch slot: those with a lower priority number first, then who came first."""

from collections import deque
from collections.abc import Callable, Sequence

from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.scheduled import ScheduledSequence


class WaitingQueue:
    """Sequences without a batch slot, in the order in which they get one. The caller ensures that one thread at a time
    uses it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._line = deque[ScheduledSequence]()

    def __len__(self) -> int:
        return len(self._line)

    @property
    def requests(self) -> int:
        """Number of requests none of whose sequences has had a slot, and of sequences that were preempted."""
        return sum(served.is_head for served in self._line)

    @property
    def tokens(self) -> int:
        """Number of tokens that these have to read."""
        return sum(len(served.row) for served in self._line if served.is_head)

    def exceeded_limit(self, tokens: int, free: int) -> str:
        """Return the limit that one more request with `tokens` prompt tokens would exceed, or "". free: free slots,
        which the first requests get as soon as those before them are prefilled."""
        left = [len(served.row) for served in self._line if served.is_head][free:]
        if self.requests >= free + self._limits.requests:
            return "requests"
        return "tokens" if left and sum(left) + tokens > self._limits.tokens else ""

    def add(self, sequences: Sequence[ScheduledSequence]) -> None:
        """Add all sequences of one request, behind those that have its priority."""
        place = len(self._line)
        while place and self._line[place - 1].priority > sequences[0].priority:
            place -= 1
        for offset, served in enumerate(sequences):
            self._line.insert(place + offset, served)

    def ahead_of(self, served: ScheduledSequence) -> list[ScheduledSequence]:
        """Return the sequences that get a slot before one that has just come."""
        return [other for other in self._line if other.priority <= served.priority]

    def put_back(self, served: ScheduledSequence) -> None:
        """Add a preempted sequence, before those with its priority that came later."""
        behind = (place for place, other in enumerate(self._line) if other.rank > served.rank)
        self._line.insert(next(behind, len(self._line)), served)

    def first(self, may: Callable[[ScheduledSequence], bool]) -> ScheduledSequence | None:
        """Return the first sequence that may begin, or None."""
        return next((served for served in self._line if may(served)), None)

    def pop(self, may: Callable[[ScheduledSequence], bool]) -> ScheduledSequence | None:
        """Remove and return the first sequence that may begin, or None."""
        found = self.first(may)
        if found is not None:
            self._line.remove(found)
        return found

    def pop_expired(self, over: Callable[[ScheduledSequence], bool]) -> list[ScheduledSequence]:
        """Remove and return all sequences that need not wait any longer."""
        found = [served for served in self._line if over(served)]
        for served in found:
            self._line.remove(served)
        return found
