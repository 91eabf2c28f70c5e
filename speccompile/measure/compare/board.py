"""State of a running comparison, as people see it: one row per method, the best first, and the time that is left."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import DEBUG, WARNING
from time import perf_counter
from typing import Any

from speccompile.measure.compare.dropping import Verdict
from speccompile.measure.compare.estimate import FIRST_BUILD, STAYING, Estimate, duration
from speccompile.measure.compare.limit import TimeLimit
from speccompile.measure.compare.methods import AUTOREGRESSIVE
from speccompile.measure.compare.passes import MeasuredPass
from speccompile.progress import LOGGER

WAITING, BUILDING, BUILT, MEASURING, MEASURED, DROPPED, REFUSED = (
    "waiting", "building", "built", "measuring", "measured", "dropped", "left out",
)  # fmt: skip
STARTED = (MEASURING, MEASURED, DROPPED)
BUSY = 0.5
"""Load average per core above which other processes disturb the figures."""


@dataclass
class Row:
    """Row of one method. prompts: number of prompts measured in the running or the last pass; passes: complete ones.
    ratio, tokens_per_second, mean_accepted: over these prompts, None before the first."""

    name: str
    state: str = WAITING
    passes: int = 0
    prompts: int = 0
    ratio: float | None = None
    tokens_per_second: float | None = None
    mean_accepted: float | None = None
    built: bool = False
    note: str = ""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sort key: complete methods first, the best of them first; dropped ones after them."""
        return self.state not in STARTED, self.state == DROPPED, -(self.ratio or 0.0)


class Board:
    """Rows and times. It logs one line per finished method; `rows` are what a live table shows."""

    def __init__(self, names: Sequence[str], prompts: int, estimate: Estimate, limit: TimeLimit) -> None:
        self.rows = {name: Row(name) for name in names}
        self.prompts, self.estimate, self.limit = prompts, estimate, limit
        self.changed: Callable[[], None] = lambda: None
        """Called after every change."""
        self._current: Row | None = None
        self._since = perf_counter()

    @property
    def sorted_rows(self) -> list[Row]:
        """Return rows in the order of a table."""
        return sorted(self.rows.values(), key=lambda row: row.rank)

    @property
    def seconds_left(self) -> float:
        """Return the estimated seconds until the comparison ends, by its limit at the latest."""
        needed, left = self.seconds_needed, self.limit.left
        return needed if left is None else min(needed, left)

    @property
    def seconds_needed(self) -> float:
        """Return the estimated seconds until all is measured."""
        alive = [row for row in self.rows.values() if row.state not in (DROPPED, REFUSED)]
        again = sum(max(self.estimate.repeats - row.passes, 0) for row in alive if row.passes)
        first = sum(not row.passes for row in alive)
        # the end of the first pass drops some of those that ran all of it
        left = self.estimate.left(sum(not row.built for row in alive), first, again * (STAYING if first else 1.0))
        if self._current is None or self._current.state != BUILDING or self.estimate.builds:
            return left
        return left * max(1.0, (perf_counter() - self._since) / FIRST_BUILD)  # guesses for a slower machine

    @property
    def done(self) -> int:
        """Number of methods that have been measured once, dropped or refused."""
        return sum(row.passes > 0 or row.state in (DROPPED, REFUSED) for row in self.rows.values())

    def start(self) -> None:
        """Show the plan of the comparison, and an estimate of its time."""
        limit = self.limit.seconds
        LOGGER.info(
            "comparing %d methods on %d prompts, at most %d times, as long as a method may win: about %s, by the first "
            "estimate%s", len(self.rows), self.prompts, self.estimate.repeats,
            duration(self.seconds_needed),
            "" if limit is None else f"; after {duration(limit)} it ends with the table so far (--minutes)",
        )  # fmt: skip
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > BUSY * cores:
            LOGGER.warning(
                "note: the machine is busy (load %.1f on %d CPUs): ratios vary more than the rule that drops "
                "methods assumes; --keep-all drops none", load, cores,
            )  # fmt: skip
        self.changed()

    def known(self, name: str, *, built: bool, found: Sequence[MeasuredPass]) -> None:
        """Restore a method's row from an earlier run. found: its complete passes."""
        row = self.rows[name]
        row.built, row.passes = built or bool(found), len(found)
        row.state = MEASURED if found else BUILT if built else WAITING
        if found:
            self.figures(name, found[-1].figures())

    def begin(self, name: str, state: str) -> None:
        """Begin to build or to measure a method on this machine."""
        row = self._current = self.rows[name]
        row.state, self._since = state, perf_counter()
        if state == MEASURING:
            row.prompts = 0
        self.changed()

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle an event of the process that builds or measures the current method: figures, or a log message, which
        keeps its level from warnings on and is a detail below."""
        if "log" in event:
            LOGGER.log(event["level"] if event["level"] >= WARNING else DEBUG, "  %s", event["log"])
        elif self._current is not None:
            self.figures(self._current.name, event)

    def figures(self, name: str, figures: Mapping[str, Any]) -> None:
        """Show figures of a pass: prompts, ratio, tokens_per_second, mean_accepted."""
        row = self.rows[name]
        row.prompts, row.ratio = figures["prompts"], figures["ratio"]
        row.tokens_per_second, row.mean_accepted = figures["tokens_per_second"], figures["mean_accepted"]
        self.changed()

    def built(self, name: str) -> None:
        """Record a built bundle, and the seconds of its build."""
        row, seconds = self.rows[name], self._spent()
        row.state, row.built = BUILT, True
        if seconds:
            self.estimate.builds.append(seconds)
        self.changed()

    def measured(self, name: str) -> None:
        """Record a complete pass, and show its results."""
        row = self.rows[name]
        self._time(row, stayed=True)
        row.state, row.passes = MEASURED, row.passes + 1
        rate = f"{row.tokens_per_second or 0:.1f} tokens/s"
        if name != AUTOREGRESSIVE:
            rate = f"{row.ratio or 0:.2f} times autoregression, {rate}, {row.mean_accepted or 0:.2f} accepted"
        self._say(f"{name}: {rate}" + (f", pass {row.passes}" if row.passes > 1 else ""))

    def dropped(self, name: str, verdict: Verdict) -> None:
        """Record a method that cannot win, and say why."""
        row = self.rows[name]
        self._time(row, stayed=False)
        row.state, row.built, row.prompts, row.ratio = DROPPED, True, verdict.prompts, verdict.ratio
        row.note = f"at most {verdict.ratio_at_most:.2f}, {verdict.best} has {verdict.best_ratio:.2f}"
        self._say(
            f"{name}: dropped after {verdict.prompts} of {self.prompts} prompts: {verdict.ratio:.2f} times "
            f"autoregression, {row.note}"
        )

    def refused(self, name: str, reason: str) -> None:
        """Record a method that cannot be built or measured."""
        row = self.rows[name]
        row.state, row.note, self._current = REFUSED, reason, None
        LOGGER.warning("%s is left out: %s", name, reason)
        self.changed()

    def _time(self, row: Row, *, stayed: bool) -> None:
        seconds = self._spent()
        if not seconds or row.name == AUTOREGRESSIVE:
            return
        if not row.passes:
            self.estimate.first.append(seconds)
            self.estimate.stayed.append(stayed)
        if stayed:
            self.estimate.later.append(seconds)

    def _spent(self) -> float:
        """Return the seconds since the current method began; 0 if another machine works for it."""
        spent = perf_counter() - self._since if self._current is not None else 0.0
        self._current = None
        return spent

    def _say(self, text: str) -> None:
        left = self.seconds_left
        about = f", about {duration(left)} left" if left else ""
        LOGGER.info("%s (%d of %d methods%s)", text, self.done, len(self.rows), about)
        self.changed()
