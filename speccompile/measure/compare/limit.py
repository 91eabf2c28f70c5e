"""Time limit of a comparison: it ends with the table so far, whatever builds or measures then."""

from time import perf_counter

KEPT = 0.02
"""Share of the time that is kept for ending processes and writing the report."""


class TimeIsUpError(Exception):
    """The time limit has passed."""


class TimeLimit:
    """Time limit that begins now. seconds: None for no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else perf_counter() + (1 - KEPT) * seconds

    @classmethod
    def of_minutes(cls, minutes: float) -> "TimeLimit":
        """Return the limit of --minutes: 0 is none."""
        return cls(60 * minutes or None)

    @property
    def left(self) -> float | None:
        """Return the seconds that are left, 0 at least; None without a limit."""
        return None if self._end is None else max(self._end - perf_counter(), 0.0)

    def check(self, needed: float = 0.0) -> None:
        """Raise TimeIsUpError unless more than the `needed` seconds are left."""
        left = self.left
        if left is not None and left <= needed:
            raise TimeIsUpError
