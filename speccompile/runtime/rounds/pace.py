"""How many drafts a round verifies: as many as are fastest by what rounds cost and bring, none where drafting does not
pay. Then it is tried again after gaps that double, as long as trials lose no more than a share of the generation, or a
little that drafting has won before. What rounds cost goes by the number of rows that decode: with few of them drafts
pay that do not with many.

Nothing here changes tokens: it decides when they come.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from speccompile.bundle.acceptance import Measured
from speccompile.runtime.rounds.speed import MEMORY, Speed

SHARE = 0.02
"""Of a generation's time: what trials may cost, and how much slower drafting may seem before it stops."""

FIRST_GAP, LONGEST_GAP = 8, 512
"""Tokens between two trials."""

CARRIED = 2.0
"""Rounds for which everything counts that earlier generations have shown."""

HORIZON = 128
"""Tokens that a generation is expected to have, unless it may have fewer; later, half as many again as it has."""

PATIENCE = 2.5
"""Rounds without drafts in whose time drafting may fall behind before it stops, beside half of what is saved."""

SAVED = 6.0
"""Rounds without drafts in whose time drafting may win before the rest is no longer kept for times in which it loses: a
text that it can predict has such times, and one that it cannot may follow one that it can."""

REFRESH = 32
"""Rounds of drafting after which one without it is timed again: the context grows."""

SELDOM, CLEAR = 128, 1.25
"""The same where drafting is more than so much faster."""


class Policy(Protocol):
    """What is asked before every round, and told after it. A window is one token and the drafts behind it."""

    def expect(self, measured: Measured) -> None:
        """How far drafts came true elsewhere, before anything is known here."""
        ...

    def begin(self, prompt: int, room: int) -> int:
        """A generation begins: tokens of its prompt, and that it may add. Returns what `choose` would: whether the
        drafter reads the prompt."""
        ...

    def join(self, prompt: int, room: int) -> None:
        """Another row begins beside those that there are; otherwise as `begin`."""
        ...

    def load(self, rows: int) -> None:
        """Rounds have so many rows from now on."""
        ...

    def choose(self, lag: int) -> int:
        """The most tokens of the next window; 1 for no drafts. lag: tokens that the drafter would first catch up on."""
        ...

    def single(self, seconds: float) -> None:
        """A round without drafts took so long."""
        ...

    def verified(self, width: int, seconds: float, accepted: Sequence[int], without: int) -> None:
        """A round took so long to verify a window of this width, or, where that is fused, also to draft. accepted:
        drafts, in every row that had any; without: rows that had none."""
        ...

    def drafted(self, seconds: float) -> None:
        """The drafts of the next round took so long."""
        ...

    def caught_up(self, tokens: int, seconds: float, lost: float) -> None:
        """The drafter took so long to read tokens; lost: how much of it would not have been spent without drafts."""
        ...


class Pace:
    """Implements `Policy` by the clock. Times and a little of what was won are kept for the next generation."""

    def __init__(self, accepts: Mapping[int, int], *, fused: bool = False) -> None:
        """As `Speed`."""
        self._speed = Speed(accepts, fused=fused)
        self._width = self._speed.full
        self._paused = self._tried = self._on_trial = False
        self._gap = self._waited = FIRST_GAP
        self._since_single = 0
        self._room = self._taken = 0.0
        self._gain = 1.0
        self._lost = self._spent = self._streak = 0.0
        """Seconds, below zero where drafting has won: in all, from generation to generation less what trials may cost;
        since it was resumed; and, never below zero, since it last paid."""

    def expect(self, measured: Measured) -> None:
        self._speed.acceptance.expect(measured)

    def begin(self, prompt: int, room: int) -> int:
        self._lost -= SHARE * self._speed.single.typical * self._taken
        self._room, self._taken = room, 0.0
        self._speed.acceptance.trust(CARRIED)
        self._gap = self._waited = FIRST_GAP
        self._width, self._tried, self._paused, self._streak = self._speed.full, False, self._speed.is_known, 0.0
        if not self._paused:
            return self._width
        self._lost = max(self._lost, -max(self._most_saved, self._speed.price(prompt)))
        return self.choose(prompt)

    def join(self, prompt: int, room: int) -> None:
        self._room = max(self._room, self._taken + room)
        rows = self._speed.rows
        self._speed.acceptance.trust(max(CARRIED, MEMORY * rows / (rows + 1)))  # its text is not known

    def load(self, rows: int) -> None:
        if self._speed.load(rows) and self._paused:
            self._gap = self._waited = FIRST_GAP  # drafting costs less than it did, or more

    def choose(self, lag: int) -> int:
        if self._paused:
            return self._width if self._waited >= self._gap and self._resumes(lag) else 1
        if not self._speed.is_based or self._since_single >= (SELDOM if self._gain > CLEAR else REFRESH):
            return 1
        if self._tried and self._speed.is_known:
            self._gain, self._width = self._speed.best(self._width)
            self._on_trial = self._on_trial and self._streak > 0
            if self._streak >= self._patience and (self._on_trial or self._gain < 1 - SHARE):
                self._gap = FIRST_GAP if self._spent < 0 else min(2 * self._gap, LONGEST_GAP)
                self._paused, self._waited = True, 0
                return 1
        return self._width

    def _resumes(self, lag: int) -> bool:
        """Whether to draft after a gap: because it pays again, or to see whether it would."""
        gain, _ = self._speed.best(self._width)
        price, left = self._speed.price(lag), self._horizon - self._taken
        pays = gain > 1 + SHARE and price <= (1 - 1 / gain) * self._speed.single.typical * left
        if not pays and self._lost + price > self._budget:
            self._gap, self._waited = min(2 * self._gap, LONGEST_GAP), 0
            return False
        self._streak, self._on_trial = 0.0, not pays
        if not pays:
            self._speed.acceptance.trust(1)
            self._streak = self._patience
        self._width, self._tried, self._paused, self._spent = self._speed.full, False, False, 0.0
        return True

    @property
    def _horizon(self) -> float:
        """Tokens that the generation is expected to have."""
        return min(self._room, max(HORIZON, 1.5 * self._taken))

    @property
    def _patience(self) -> float:
        single = self._speed.single.typical
        return PATIENCE * single + min(max(0.0, -self._lost), SAVED * single) / 2

    @property
    def _most_saved(self) -> float:
        return max(SAVED * self._speed.single.typical, self._speed.price(0))  # at least one trial

    @property
    def _budget(self) -> float:
        """Seconds that trials may cost in the generation."""
        return SHARE * self._speed.single.typical * self._horizon

    def single(self, seconds: float) -> None:
        self._speed.single.add(seconds)
        self._taken += 1
        self._waited += 1
        self._since_single = 0

    def verified(self, width: int, seconds: float, accepted: Sequence[int], without: int) -> None:
        speed, tokens = self._speed, 1 + sum(accepted) / (len(accepted) + without)
        speed.windows[width].add(seconds)
        speed.acceptance.add(accepted, speed.accepts[width], without)
        self._lose(speed.windows[width].typical - tokens * speed.single.typical)
        self._taken += tokens
        self._since_single += 1
        self._tried = True

    def drafted(self, seconds: float) -> None:
        self._speed.drafting.add(seconds)
        self._lose(self._speed.drafting.typical)

    def caught_up(self, tokens: int, seconds: float, lost: float) -> None:
        self._speed.add_reading(tokens, seconds)
        self._lose(lost)

    def _lose(self, seconds: float) -> None:
        self._lost = max(self._lost + seconds, -self._most_saved)
        self._spent += seconds
        self._streak = max(0.0, self._streak + seconds)
