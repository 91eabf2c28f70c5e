"""How fast rounds are with drafts, against those without: from times measured here, and drafts that came true so far.

With P(d) the share of rows that accept the draft at depth d, a round that verifies drafts up to depth D gives
1 + P(1) + .. + P(D) tokens. It pays where these, over its time, are more than one over the time of a round that
verifies nothing (Leviathan et al. 2023, section 3.3, with measured times in place of their cost coefficient).
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from speccompile.bundle.acceptance import MeasuredAcceptance

MEMORY = 20
"""Rounds of the text that count, the last of them most."""

LONG_MEMORY = 100
"""Rounds of all texts that count."""

PRIOR_WEIGHT = 10.0
"""Rounds of the text for which all that is known of others counts."""

PRIOR_ACCEPTANCE = 0.8
"""Chance of the first draft before anything is known; it counts for one round."""

WARM_UP_ROUNDS = 2
"""Rounds without drafts that are timed before anything is compared: at first caches are cold."""

MIN_TIMED_CATCH_UP = 32
"""Tokens that a catch-up must have for its time to be more than its overhead."""

WIDTH_MARGIN = 0.02
"""A width must be this much faster to take another's place."""


class Times:
    """Seconds of the last runs. Their lower quartile stands for them: what else goes on in a machine adds to a time,
    and the least of all would be the less, the longer ago the first of them was.
    """

    def __init__(self) -> None:
        self.typical, self.count = 0.0, 0
        self._last = deque[float](maxlen=9)

    def add(self, seconds: float) -> None:
        self.count += 1
        self._last.append(seconds)
        self.typical = sorted(self._last)[(len(self._last) - 1) // 4]

    def expect(self, seconds: float, count: int) -> None:
        """Until something is measured this stands for it, as if so many times had been added."""
        self.typical, self.count = seconds, count


class RoundTimes:
    """Seconds of rounds of some number of rows: windows, of every width, of rounds that draft, up to their tokens;
    single, of rounds without drafts; drafting."""

    def __init__(self, widths: Iterable[int]) -> None:
        self.windows = {width: Times() for width in widths}
        self.autoregressive, self.drafting = Times(), Times()

    def expected(self, share: float) -> "RoundTimes":
        """Of `share` times as many rows. What a run costs goes by its tokens, and a wider window has more as well."""
        found = RoundTimes(self.windows)
        found.autoregressive.expect(self._at(share), self.autoregressive.count)
        growth = found.autoregressive.typical / self.autoregressive.typical
        found.drafting.expect(growth * self.drafting.typical, self.drafting.count)
        for width, times in self.windows.items():
            if times.count:
                found.windows[width].expect(self._at(share * width), times.count)
        return found

    def _at(self, width: float) -> float:
        """Of a round of any width, on lines through those that were timed."""
        timed = [(1, self.autoregressive.typical)]
        timed += [(w, times.typical) for w, times in self.windows.items() if w > 1 and times.count]
        if len(timed) == 1:
            return self.autoregressive.typical
        place = max([index for index, (w, _) in enumerate(timed[:-1]) if w <= width], default=0)
        (low, seconds), (high, more) = timed[place : place + 2]
        slope = max(0.0, (more - seconds) / (high - low))
        return max(seconds + slope * (width - low), seconds * min(1.0, width))


class AcceptanceCounts:
    """Drafts that were tried and accepted at each depth, of those whose predecessors were accepted; rows and rounds,
    all of them and those that had drafts. The last ones count most.
    """

    def __init__(self, depth: int, memory: float) -> None:
        """memory: rounds that count, the last of them most."""
        self.tried, self.accepted = [0.0] * depth, [0.0] * depth
        self.rows = self.rows_with = self.rounds = self.rounds_with = 0.0
        self._memory = memory

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """As `Acceptance.add`."""
        self.scale(1 - 1 / self._memory)
        for count in accepted:
            for depth in range(count):
                self.tried[depth] += 1
                self.accepted[depth] += 1
            if count < limit:
                self.tried[count] += 1
        self.rows += len(accepted) + without
        self.rows_with += len(accepted)
        self.rounds += 1
        self.rounds_with += bool(accepted)

    def scale(self, factor: float) -> None:
        self.tried = [factor * count for count in self.tried]
        self.accepted = [factor * count for count in self.accepted]
        self.rows *= factor
        self.rows_with *= factor
        self.rounds *= factor
        self.rounds_with *= factor


def count_rounds(rounds: Iterable[tuple[int, int]], depth: int, *, is_chain: bool) -> MeasuredAcceptance:
    """Count all of some rounds of single rows alike.

    rounds: of each, the tokens that it gave, the bonus token included, and the drafts that it had, of a tree all its
    nodes. depth: the most drafts that a round accepts.
    """
    counts = AcceptanceCounts(depth, math.inf)
    for tokens, drafts in rounds:
        counts.add([tokens - 1] if drafts else [], min(drafts, depth) if is_chain else depth, int(not drafts))
    tried, accepted = (tuple(map(int, each)) for each in (counts.tried, counts.accepted))
    return MeasuredAcceptance(int(counts.rounds), int(counts.rounds_with), tried, accepted)


class Acceptance:
    """Which share of drafts is accepted at each depth, of those whose predecessors were: in the text at hand, and where
    little is known of that, in all texts.

    A depth that was seldom reached is thought to be like the one before it.
    """

    def __init__(self, depth: int) -> None:
        self._here, self._everywhere = AcceptanceCounts(depth, MEMORY), AcceptanceCounts(depth, LONG_MEMORY)

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """One round. accepted: drafts, in every row that had any; limit: how many a row could accept; without: rows
        that had none."""
        self._here.add(accepted, limit, without)
        self._everywhere.add(accepted, limit, without)

    def expect(self, measured: MeasuredAcceptance) -> None:
        """Before anything is known here this is: like rounds of other texts, LONG_MEMORY of them at most."""
        factor, counts = min(1.0, LONG_MEMORY / measured.rounds), self._everywhere
        counts.tried = [factor * count for count in measured.tried]
        counts.accepted = [factor * count for count in measured.accepted]
        counts.rows = counts.rounds = factor * measured.rounds
        counts.rows_with = counts.rounds_with = factor * measured.drafted

    def limit_weight(self, rounds: float) -> None:
        """Let all that is known of the text count for so many rounds at most."""
        if self._here.rounds > rounds:
            self._here.scale(rounds / self._here.rounds)

    @property
    def _weight(self) -> float:
        """What a round of any text counts."""
        if not self._everywhere.rounds:
            return 0.0
        return min(1.0, PRIOR_WEIGHT / (1 + self._here.rounds / PRIOR_WEIGHT) / self._everywhere.rounds)

    def tokens(self) -> list[float]:
        """Expected tokens of a row that has drafts, if at most 0, 1, .. of them can be accepted."""
        here, everywhere, weight = self._here, self._everywhere, self._weight
        chance, reached, total = PRIOR_ACCEPTANCE, 1.0, 1.0
        found = [total]
        for depth in range(len(here.tried)):
            kept = here.accepted[depth] + weight * everywhere.accepted[depth]
            chance = (kept + chance) / (here.tried[depth] + weight * everywhere.tried[depth] + 1)
            reached *= chance
            total += reached
            found.append(total)
        return found

    @property
    def rows(self) -> float:
        """The share of rows that have drafts."""
        here, everywhere, weight = self._here, self._everywhere, self._weight
        return (here.rows_with + weight * everywhere.rows_with + 1) / (here.rows + weight * everywhere.rows + 1)

    @property
    def rounds(self) -> float:
        """The share of rounds in which some row has drafts."""
        here, everywhere, weight = self._here, self._everywhere, self._weight
        return (here.rounds_with + weight * everywhere.rounds_with + 1) / (here.rounds + weight * everywhere.rounds + 1)


class SpeedupModel:
    """What rounds of every width cost on an engine, and bring in the text at hand."""

    def __init__(self, accepts: Mapping[int, int], *, fused: bool) -> None:
        """accepts: width of a window -> drafts that it can accept, from {1: 0} on. fused: rounds draft as they verify,
        and the times of `windows` hold both."""
        self.accepts, self.full, self._fused = dict(sorted(accepts.items())), max(accepts), fused
        self.acceptance = Acceptance(accepts[self.full])
        self._reading = Times()
        self._costs = dict[int, RoundTimes]()
        """Of every number of rows that there were."""
        self.rows = 0
        self.set_batch_size(1)

    def set_batch_size(self, rows: int) -> bool:
        """The rounds that follow have so many rows. Returns whether those before had another number of them. Where not
        all of their costs are known, those of the number next to theirs stand for them."""
        if rows == self.rows:
            return False
        self.rows = rows
        if not self._knows(self._costs.setdefault(rows, RoundTimes(self.accepts))):
            known = [other for other, costs in self._costs.items() if self._knows(costs)]
            nearest = min(known, key=lambda other: abs(other - rows), default=None)
            if nearest is not None:
                self._costs[rows] = self._costs[nearest].expected(rows / nearest)
        return True

    def _knows(self, costs: RoundTimes) -> bool:
        """Whether rounds with and without drafts can be compared."""
        has_drafted = costs.windows[self.full].count > 0 and (self._fused or costs.drafting.count > 0)
        return costs.autoregressive.count >= WARM_UP_ROUNDS and has_drafted

    @property
    def windows(self) -> dict[int, Times]:
        """Rounds that draft, up to their tokens."""
        return self._costs[self.rows].windows

    @property
    def autoregressive(self) -> Times:
        """Rounds without drafts."""
        return self._costs[self.rows].autoregressive

    @property
    def drafting(self) -> Times:
        return self._costs[self.rows].drafting

    def add_reading(self, tokens: int, seconds: float) -> None:
        """The drafter has caught up."""
        if tokens >= MIN_TIMED_CATCH_UP:
            self._reading.add(seconds / tokens)

    @property
    def is_based(self) -> bool:
        """Whether there is something to compare with."""
        return self.autoregressive.count >= WARM_UP_ROUNDS

    @property
    def is_known(self) -> bool:
        """Whether rounds with and without drafts can be compared."""
        return self._knows(self._costs[self.rows])

    def best(self, current: int) -> tuple[float, int]:
        """The speed at the best width, as a multiple of that without drafts, and the width; the current one unless
        another is clearly better."""
        tokens, rows, rounds = self.acceptance.tokens(), self.acceptance.rows, self.acceptance.rounds
        seconds, best, found = self.seconds, 0.0, current
        without = (1 - rounds) * seconds[1]
        for width, limit in self.accepts.items():
            if limit:
                speed = (1 + rows * (tokens[limit] - 1)) / (rounds * seconds[width] + without)
                if speed > best * (1 if width == current else 1 + WIDTH_MARGIN):
                    best, found = speed, width
        return best * self.autoregressive.typical, found

    def trial_cost(self, lag: int) -> float:
        """Seconds that are lost by a round whose drafts are all wrong, when the drafter reads `lag` tokens for it."""
        return lag * self._reading.typical + self.seconds[self.full] - self.autoregressive.typical

    @property
    def seconds(self) -> dict[int, float]:
        """Of rounds that draft, at every width; between widths that were timed, on a line from one to the other."""
        if self._fused:
            full = self.windows[self.full]
            return {width: (times if times.count else full).typical for width, times in self.windows.items()}
        drafting, found = self.drafting.typical, dict[int, float]()
        before, seconds, between = 1, self.autoregressive.typical, list[int]()
        for width, times in self.windows.items():
            between.append(width)
            if width > 1 and times.count:
                slope = (times.typical - seconds) / (width - before)
                found.update((other, drafting + seconds + slope * (other - before)) for other in between)
                before, seconds, between = width, times.typical, []
        found.update((width, drafting + seconds) for width in between)
        return found
