"""What waits for a row: first come, first served."""

from collections import deque
from collections.abc import Callable, Sequence

from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.scheduled import ScheduledSequence


class WaitingQueue:
    """Sequences that have no row yet, in the order in which they came. The caller sees to it that one thread is in here
    at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._line = deque[ScheduledSequence]()

    def __bool__(self) -> bool:
        return bool(self._line)

    @property
    def requests(self) -> int:
        """Requests of which no sequence has had a row."""
        return sum(served.index == 0 for served in self._line)

    @property
    def tokens(self) -> int:
        """Of the prompts of all that wait."""
        return sum(len(served.row.prompt) for served in self._line if served.index == 0)

    def exceeded_limit(self, tokens: int, free: int) -> str:
        """Which of the limits one more request with a prompt of so many tokens would pass; "" for none. free: rows that
        the first ones will get as soon as those before them have been read."""
        left = [len(served.row.prompt) for served in self._line if served.index == 0][free:]
        if self.requests >= free + self._limits.requests:
            return "requests"
        return "tokens" if left and sum(left) + tokens > self._limits.tokens else ""

    def add(self, sequences: Sequence[ScheduledSequence]) -> None:
        """All of one request."""
        self._line.extend(sequences)

    def pop(self, may: Callable[[ScheduledSequence], bool]) -> ScheduledSequence | None:
        """The first that may begin, None where there is none."""
        found = next((served for served in self._line if may(served)), None)
        if found is not None:
            self._line.remove(found)
        return found

    def pop_expired(self, over: Callable[[ScheduledSequence], bool]) -> list[ScheduledSequence]:
        """All that need wait no longer."""
        found = [served for served in self._line if over(served)]
        for served in found:
            self._line.remove(served)
        return found
