"""Speedup over autoregressive rounds, predicted from round times measured here and from the acceptance of drafts so
far.

With P(d) the share of sequences that accept the draft at depth d, a round that verifies drafts up to depth D gives 1 +
P(1) + .. + P(D) tokens. Drafting pays if this number, over the round's time, is more than one over the time of a round
that verifies nothing (Leviathan et al. 2023, section 3.3, with measured times for their cost coefficient).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from speccompile.runtime.rounds.acceptance_rate import Acceptance
from speccompile.runtime.rounds.tree_acceptance import TreeAcceptance

WARM_UP_ROUNDS = 1
"""Number of timed rounds without drafts before any comparison: caches are cold at first."""

MIN_TIMED_CATCH_UP = 32
"""Minimum number of tokens of a catch-up that is timed: the time of a shorter one is mostly overhead."""

WIDTH_MARGIN, NEW_WIDTH_MARGIN = 0.02, 0.1
"""Shares by which another width must be faster to replace the current one. The second is for a width that this process
has not run yet: its first round binds and allocates."""


class Times:
    """Seconds of the last nine runs, summarized by their lower quartile. Other load on the machine only adds time, and
    a minimum over a long history keeps falling."""

    def __init__(self) -> None:
        self.count, self._typical = 0, 0.0
        self._last = deque[float](maxlen=9)
        self._is_held = self._is_stale = False
        self._beside: Times | None = None
        self._share = self._beside_was = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self._last.append(seconds)
        self._is_stale = not self._is_held

    @property
    def typical(self) -> float:
        """Return seconds of a run; evaluated on demand, which is not after every run."""
        if self._is_stale:
            self._is_stale = False
            self._typical = sorted(self._last)[(len(self._last) - 1) // 4]
        if self._beside is not None and not self._last and self._beside._last:
            return self._typical + self._share * (self._beside.typical - self._beside_was)
        return self._typical

    @property
    def is_measured(self) -> bool:
        """Return whether runs of this process were timed."""
        return bool(self._last)

    def expect(self, seconds: float, count: int, *, held: bool = False) -> None:
        """Use these values until something is measured, as if `count` times had been added. held: use the time until
        `release`, whatever is measured."""
        self._typical, self.count, self._is_held, self._is_stale = seconds, count, held, False

    def follow(self, beside: "Times", share: float) -> None:
        """Expect `share` of what `beside`, once it is measured, takes longer than expected now: a round of a generation
        has a part on the host, in which runs at the opening of an engine had none."""
        self._share, self._beside, self._beside_was = share, beside, beside.typical

    def release(self) -> None:
        """Use the measured times from now on."""
        self._is_held, self._is_stale = False, bool(self._last)


class RoundTimes:
    """Seconds of rounds with a given number of sequences. windows: width -> rounds that draft, up to their tokens;
    autoregressive: rounds without drafts; drafting: the drafts of a round."""

    def __init__(self, widths: Iterable[int]) -> None:
        self.windows = {width: Times() for width in widths}
        self.autoregressive, self.drafting = Times(), Times()

    def expected(self, share: float) -> "RoundTimes":
        """Return the times expected with `share` times as many sequences. A run's cost depends on its number of tokens,
        which a wider window raises as well."""
        found = RoundTimes(self.windows)
        found.autoregressive.expect(self._at(share), self.autoregressive.count)
        growth = found.autoregressive.typical / self.autoregressive.typical
        found.drafting.expect(growth * self.drafting.typical, self.drafting.count)
        for width, times in self.windows.items():
            if times.count:
                found.windows[width].expect(self._at(share * width), times.count)
        return found

    def _at(self, width: float) -> float:
        """Return the seconds of a round of any width, on lines through the timed widths."""
        timed = [(1, self.autoregressive.typical)]
        timed += [(w, times.typical) for w, times in self.windows.items() if w > 1 and times.count]
        if len(timed) == 1:
            return self.autoregressive.typical
        place = max([index for index, (w, _) in enumerate(timed[:-1]) if w <= width], default=0)
        (low, seconds), (high, more) = timed[place : place + 2]
        slope = max(0.0, (more - seconds) / (high - low))
        return max(seconds + slope * (width - low), seconds * min(1.0, width))


class SpeedupModel:
    """Cost of rounds of every width on an engine, and their expected tokens in the current text."""

    def __init__(self, accepts: Mapping[int, int], *, fused: bool, tree_depth: int = 0) -> None:
        """accepts: window width -> maximum number of accepted drafts, from {1: 0} on. fused: rounds draft as they
        verify, and the times of `windows` hold both. tree_depth: of trees whose first nodes may be verified alone; 0 if
        there are none. Then `accepts` has the number of each width, from {1: 0} on."""
        self.accepts, self.full, self._fused = dict(sorted(accepts.items())), max(accepts), fused
        self.is_tree, most = tree_depth > 0, accepts[self.full]
        self.acceptance = (
            TreeAcceptance(most, list(self.accepts)[1] - 1, tree_depth) if tree_depth else Acceptance(most)
        )
        self._reading = Times()
        self._costs = dict[int, RoundTimes]()
        """Number of sequences -> times of such rounds."""
        self._expected: RoundTimes | None = None
        self._is_held = False
        self.rows = 0
        self.set_batch_size(1)

    def set_batch_size(self, rows: int) -> bool:
        """Set the number of sequences of the following rounds. Return whether it has changed. Unless all of its costs
        are measured, estimate them from the nearest number of sequences."""
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
        """Return whether rounds with and without drafts can be compared."""
        has_drafted = costs.windows[self.full].count > 0 and (self._fused or costs.drafting.count > 0)
        return costs.autoregressive.count >= WARM_UP_ROUNDS and has_drafted

    @property
    def windows(self) -> dict[int, Times]:
        """Return times of rounds that draft, up to their tokens, by width."""
        return self._costs[self.rows].windows

    @property
    def autoregressive(self) -> Times:
        """Return times of rounds without drafts."""
        return self._costs[self.rows].autoregressive

    @property
    def drafting(self) -> Times:
        return self._costs[self.rows].drafting

    def measured_times(self) -> dict[str, Any] | None:
        """Return what rounds of one sequence cost, in seconds, as JSON; None until they were timed in this process.

        autoregressive: a round without drafts; windows: width -> verification of so many tokens, with drafting where
        that is fused; drafting: the drafts of a round, 0 where fused; catch_up: the drafter, for each token it reads.
        """
        costs = self._costs[1]
        needed = [costs.autoregressive, *([] if self._fused else [costs.drafting])]
        windows = costs.windows.values() if self.is_tree else [costs.windows[self.full]]
        if not all(times.is_measured for times in needed) or not any(times.is_measured for times in windows):
            return None
        found = {str(width): times.typical for width, times in costs.windows.items() if width > 1 and times.count}
        return {
            "autoregressive": costs.autoregressive.typical, "windows": found, "drafting": costs.drafting.typical,
            "catch_up": self._reading.typical,
        }  # fmt: skip

    def expect_times(self, times: Mapping[str, Any]) -> None:
        """Start from what `measured_times` returned. Times that do not fit, as of other widths, are ignored whole."""
        costs = self._costs[1]
        windows = {int(width): seconds for width, seconds in times["windows"].items()}
        if self._knows(costs) or self.full not in windows or not windows.keys() <= costs.windows.keys():
            return
        self._expected = RoundTimes(self.accepts)
        for each in (costs, self._expected):
            each.autoregressive.expect(times["autoregressive"], WARM_UP_ROUNDS)
            share = 1.0 if self._fused else 0.5  # of the host's part, in each of the runs of a round
            for width, seconds in windows.items():
                each.windows[width].expect(seconds, 1, held=True)
                each.windows[width].follow(each.autoregressive, share)
            if not self._fused:
                each.drafting.expect(times["drafting"], 1, held=True)
                each.drafting.follow(each.autoregressive, share)
        self._is_held = True
        if times["catch_up"]:
            self._reading.expect(times["catch_up"], 1)

    def add_autoregressive(self, seconds: float) -> None:
        """Record the time of a round without drafts.

        Until there is one, expected times hold on both sides of a comparison: on a busy machine, and in the first
        rounds of a process, rounds with drafts would seem slow beside the expected one without."""
        self.autoregressive.add(seconds)
        if self._is_held and self.rows == 1:
            self._is_held, costs = False, self._costs[1]
            for times in (*costs.windows.values(), costs.drafting):
                times.release()

    def add_reading(self, tokens: int, seconds: float) -> None:
        """Record the time in which the drafter read `tokens` missed tokens."""
        if tokens >= MIN_TIMED_CATCH_UP:
            self._reading.add(seconds / tokens)

    @property
    def is_based(self) -> bool:
        """Return whether autoregressive rounds have been timed, as the baseline of comparisons."""
        return self.autoregressive.count >= WARM_UP_ROUNDS

    @property
    def is_known(self) -> bool:
        """Return whether rounds with and without drafts can be compared."""
        return self._knows(self._costs[self.rows])

    def best(self, current: int) -> tuple[float, int]:
        """Return the speedup over autoregressive rounds at the best width, and that width. The current width stays
        unless another one is clearly better."""
        tokens, rows, rounds = self.acceptance.tokens(), self.acceptance.rows, self.acceptance.rounds
        seconds = self.seconds
        without = (1 - rounds) * seconds[1]
        speeds = {
            width: (1 + rows * (tokens[limit] - 1)) / (rounds * seconds[width] + without)
            for width, limit in self.accepts.items()
            if limit
        }
        best, found = speeds[current], current
        for width, speed in speeds.items():
            margin = WIDTH_MARGIN if self.windows[width].is_measured else NEW_WIDTH_MARGIN
            if speed > max(best, speeds[current] * (1 + margin)):
                best, found = speed, width
        return best * self.autoregressive.typical, found

    def wider(self, width: int) -> int:
        """Return the next width above this one, or the full width."""
        return next((other for other in self.accepts if other > width), self.full)

    @property
    def usual_gain(self) -> float:
        """Return the speedup over autoregressive rounds of a full window with the acceptance of all texts."""
        tokens = self.acceptance.usual_tokens()[self.accepts[self.full]]
        return tokens * self.autoregressive.typical / self.seconds[self.full]

    def trial_cost(self, lag: int) -> float:
        """Return the seconds lost by a round whose drafts are all rejected, if the drafter reads `lag` tokens before
        it."""
        costs = self._costs[self.rows]
        full = costs.windows[self.full]
        # Usually timed, and asked for twice a round: the seconds of all widths would cost the most of a decision.
        seconds = full.typical + costs.drafting.typical if full.count else self.seconds[self.full]
        return lag * self._reading.typical + seconds - costs.autoregressive.typical

    def estimated_speedup(self, draft_lengths: Sequence[int], new_tokens: int) -> float | None:
        """See `DraftLengthPolicy`. Both sides have the times that were expected, else those measured in this process,
        in which rounds without drafts are few: a single slow one would show a speedup that is none. A round that drafts
        does what one without does and more: on a busy machine a time may say otherwise."""
        costs = self._expected or self._costs[1]
        if not any(draft_lengths) or not self._knows(costs):
            return None
        seconds, single = self._seconds_of(costs), costs.autoregressive.typical
        widths = [
            next((width for width in self.accepts if width > drafts), self.full) for drafts in draft_lengths if drafts
        ]
        drafted = sum(max(seconds[width], single) for width in widths)
        return new_tokens * single / ((len(draft_lengths) - len(widths)) * single + drafted)

    @property
    def seconds(self) -> dict[int, float]:
        """Width -> seconds of a round that drafts, interpolated linearly between the timed widths."""
        return self._seconds_of(self._costs[self.rows])

    def _seconds_of(self, costs: RoundTimes) -> dict[int, float]:
        single, drafting = costs.autoregressive.typical, costs.drafting.typical
        timed = [(width, times.typical) for width, times in costs.windows.items() if width > 1 and times.count]
        if not self._fused:
            return {width: drafting + each for width, each in _on_lines([(1, single), *timed], costs.windows).items()}
        # Drafting is a part of each, so that the lines do not begin at a round without.
        timed = timed or [(self.full, costs.windows[self.full].typical)]
        found = _on_lines(timed, costs.windows)
        return {width: max(single, each) if width < timed[0][0] else each for width, each in found.items()}


def _on_lines(timed: Sequence[tuple[int, float]], widths: Iterable[int]) -> dict[int, float]:
    """Return the seconds of all widths, ascending, on lines through the timed ones. The first line reaches below the
    first of them; beyond the last the seconds stay the same."""
    found, place = dict[int, float](), 0
    for width in widths:
        while place < len(timed) - 2 and width >= timed[place + 1][0]:
            place += 1
        (low, seconds), (high, more) = timed[place], timed[min(place + 1, len(timed) - 1)]
        found[width] = more if width >= high else seconds + (more - seconds) / max(1, high - low) * (width - low)
    return found
