"""How fast rounds are with drafts, against those without: from times measured here, and drafts that came true so far.

With P(d) the share of rows that accept the draft at depth d, a round that verifies drafts up to depth D gives
1 + P(1) + .. + P(D) tokens. It pays where these, over its time, are more than one over the time of a round that
verifies nothing (Leviathan et al. 2023, section 3.3, with measured times in place of their cost coefficient).
"""

from collections import deque
from collections.abc import Mapping, Sequence

MEMORY = 20
"""Rounds of the text that count, the last of them most."""

HOPE = 0.8
"""Chance of the first draft before anything is known; it counts for one round."""

WARM = 2
"""Rounds without drafts that are timed before anything is compared: at first caches are cold."""

LEAST_READ = 32
"""Tokens that a catch-up must have for its time to be more than its overhead."""

CLEARLY = 0.02
"""A width must be this much faster to take another's place."""


class Times:
    """Seconds of the last runs. The least stands for all of them: what else goes on in a machine only adds to it."""

    def __init__(self) -> None:
        self.least, self.count = 0.0, 0
        self._last = deque[float](maxlen=8)

    def add(self, seconds: float) -> None:
        self.count += 1
        self._last.append(seconds)
        self.least = min(self._last)


class Acceptance:
    """Which share of drafts is accepted at each depth, of those whose predecessors were; the last rounds count most.

    A depth that was seldom reached is thought to be like the one before it.
    """

    def __init__(self, depth: int) -> None:
        self._tried, self._kept = [0.0] * depth, [0.0] * depth
        self._rows = self._rows_with = self._rounds = self._rounds_with = 0.0

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """One round. accepted: drafts, in every row that had any; limit: how many a row could accept; without: rows
        that had none."""
        self._scale(1 - 1 / MEMORY)
        for count in accepted:
            for depth in range(count):
                self._tried[depth] += 1
                self._kept[depth] += 1
            if count < limit:
                self._tried[count] += 1
        self._rows += len(accepted) + without
        self._rows_with += len(accepted)
        self._rounds += 1
        self._rounds_with += bool(accepted)

    def trust(self, rounds: float) -> None:
        """Let all that is known count for so many rounds at most."""
        if self._rounds > rounds:
            self._scale(rounds / self._rounds)

    def _scale(self, factor: float) -> None:
        self._tried = [factor * count for count in self._tried]
        self._kept = [factor * count for count in self._kept]
        self._rows *= factor
        self._rows_with *= factor
        self._rounds *= factor
        self._rounds_with *= factor

    def tokens(self) -> list[float]:
        """Expected tokens of a row that has drafts, if at most 0, 1, .. of them can be accepted."""
        chance, reached, total = HOPE, 1.0, 1.0
        found = [total]
        for tried, kept in zip(self._tried, self._kept, strict=True):
            chance = (kept + chance) / (tried + 1)
            reached *= chance
            total += reached
            found.append(total)
        return found

    @property
    def rows(self) -> float:
        """The share of rows that have drafts."""
        return (self._rows_with + 1) / (self._rows + 1)

    @property
    def rounds(self) -> float:
        """The share of rounds in which some row has drafts."""
        return (self._rounds_with + 1) / (self._rounds + 1)


class Speed:
    """What rounds of every width cost on an engine, and bring in the text at hand."""

    def __init__(self, accepts: Mapping[int, int], *, fused: bool) -> None:
        """accepts: width of a window -> drafts that it can accept, from {1: 0} on. fused: rounds draft as they verify,
        and the times of `windows` hold both."""
        self.accepts, self.full, self._fused = dict(sorted(accepts.items())), max(accepts), fused
        self.acceptance = Acceptance(accepts[self.full])
        self.windows = {width: Times() for width in self.accepts}
        """Rounds that draft, up to their tokens."""
        self.single, self.drafting = Times(), Times()
        self._reading = Times()
        self.seconds = dict.fromkeys(self.accepts, 0.0)
        """Of rounds that draft, in windows of each width."""

    def add(self, times: Times, seconds: float) -> None:
        """One of `windows`, `single` or `drafting` took so long."""
        before = times.least
        times.add(seconds)
        if times.least != before:  # seldom: the least of many
            self.seconds = {width: self._round_seconds(width) for width in self.accepts}

    def add_reading(self, tokens: int, seconds: float) -> None:
        """The drafter has caught up."""
        if tokens >= LEAST_READ:
            self._reading.add(seconds / tokens)

    @property
    def is_based(self) -> bool:
        """Whether there is something to compare with."""
        return self.single.count >= WARM

    @property
    def is_known(self) -> bool:
        """Whether rounds with and without drafts can be compared."""
        return self.is_based and self.windows[self.full].count > 0 and (self._fused or self.drafting.count > 0)

    def best(self, current: int) -> tuple[float, int]:
        """The speed at the best width, as a multiple of that without drafts, and the width; the current one unless
        another is clearly better."""
        tokens, rows, rounds = self.acceptance.tokens(), self.acceptance.rows, self.acceptance.rounds
        without, best, found = (1 - rounds) * self.seconds[1], 0.0, current
        for width, limit in self.accepts.items():
            if limit:
                speed = (1 + rows * (tokens[limit] - 1)) / (rounds * self.seconds[width] + without)
                if speed > best * (1 if width == current else 1 + CLEARLY):
                    best, found = speed, width
        return best * self.single.least, found

    def price(self, lag: int) -> float:
        """Seconds that are lost by a round whose drafts are all wrong, when the drafter reads `lag` tokens for it."""
        return lag * self._reading.least + self.seconds[self.full] - self.single.least

    def _round_seconds(self, width: int) -> float:
        """Of a round that drafts, at this width; between widths that were timed, on a line from one to the other."""
        if self._fused:
            return (self.windows[width] if self.windows[width].count else self.windows[self.full]).least
        return self.drafting.least + self._on_a_line(width)

    def _on_a_line(self, width: int) -> float:
        before, least = 1, self.single.least
        for other, times in self.windows.items():
            if other > 1 and times.count:
                if other >= width:
                    return least + (times.least - least) * (width - before) / (other - before)
                before, least = other, times.least
        return least
