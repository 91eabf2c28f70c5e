"""How many drafts a round verifies: as many as are fastest by what rounds cost and bring, none where drafting does not
pay. Then it is tried again after gaps that double, as long as trials lose no more than a share of the generation, or a
little that drafting has won before. What rounds cost goes by the number of rows that decode: with few of them drafts
pay that do not with many.

Nothing here changes tokens: it decides when they come.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.speedup_model import MEMORY, SpeedupModel

TRIAL_SHARE = 0.02
"""Of a generation's time: what trials may cost, and how much slower drafting may seem before it stops."""

FIRST_GAP, LONGEST_GAP = 8, 512
"""Tokens between two trials."""

PRIOR_ROUNDS = 2.0
"""Rounds for which everything counts that earlier generations have shown."""

EXPECTED_NEW_TOKENS = 128
"""Tokens that a generation is expected to have, unless it may have fewer; later, half as many again as it has."""

LOSS_PATIENCE_ROUNDS = 2.5
"""Rounds without drafts in whose time drafting may fall behind before it stops, beside half of what is saved."""

MAX_SAVED_ROUNDS = 6.0
"""Rounds without drafts in whose time drafting may win before the rest is no longer kept for times in which it loses: a
text that it can predict has such times, and one that it cannot may follow one that it can."""

REFRESH = 32
"""Rounds of drafting after which one without it is timed again: the context grows."""

RARE_REFRESH, CLEAR_SPEEDUP = 128, 1.25
"""The same where drafting is more than so much faster."""


class DraftLengthPolicy(Protocol):
    """What is asked before every round, and told after it. A window is one token and the drafts behind it."""

    def expect(self, measured: MeasuredAcceptance) -> None:
        """How far drafts came true elsewhere, before anything is known here."""
        ...

    def begin(self, prompt: int, room: int) -> int:
        """A generation begins: tokens of its prompt, and that it may add. Returns what `choose` would: whether the
        drafter reads the prompt."""
        ...

    def join(self, prompt: int, room: int) -> None:
        """Another row begins beside those that there are; otherwise as `begin`."""
        ...

    def record_batch_size(self, rows: int) -> None:
        """Rounds have so many rows from now on."""
        ...

    def next_width(self, lag: int) -> int:
        """The most tokens of the next window; 1 for no drafts. lag: tokens that the drafter would first catch up on."""
        ...

    def record_autoregressive(self, seconds: float) -> None:
        """A round without drafts took so long."""
        ...

    def record_verify(self, width: int, seconds: float, accepted: Sequence[int], without: int) -> None:
        """A round took so long to verify a window of this width, or, where that is fused, also to draft. accepted:
        drafts, in every row that had any; without: rows that had none."""
        ...

    def record_draft(self, seconds: float) -> None:
        """The drafts of the next round took so long."""
        ...

    def record_catch_up(self, tokens: int, seconds: float, lost: float) -> None:
        """The drafter took so long to read tokens; lost: how much of it would not have been spent without drafts."""
        ...


class AdaptiveDraftLength:
    """Implements `Policy` by the clock. Times and a little of what was won are kept for the next generation."""

    def __init__(self, accepts: Mapping[int, int], *, fused: bool = False) -> None:
        """As `Speed`."""
        self._model = SpeedupModel(accepts, fused=fused)
        self._width = self._model.full
        self._paused = self._tried = self._on_trial = False
        self._gap = self._waited = FIRST_GAP
        self._since_autoregressive = 0
        self._max_new_tokens = self._new_tokens = 0.0
        self._speedup = 1.0
        self._trial_loss = self._loss_since_resume = self._recent_loss = 0.0
        """Seconds, below zero where drafting has won: in all, from generation to generation less what trials may cost;
        since it was resumed; and, never below zero, since it last paid."""

    def expect(self, measured: MeasuredAcceptance) -> None:
        self._model.acceptance.expect(measured)

    def begin(self, prompt: int, room: int) -> int:
        self._trial_loss -= TRIAL_SHARE * self._model.autoregressive.typical * self._new_tokens
        self._max_new_tokens, self._new_tokens = room, 0.0
        self._model.acceptance.limit_weight(PRIOR_ROUNDS)
        self._gap = self._waited = FIRST_GAP
        self._width, self._tried, self._paused, self._recent_loss = self._model.full, False, self._model.is_known, 0.0
        if not self._paused:
            return self._width
        self._trial_loss = max(self._trial_loss, -max(self._most_saved, self._model.trial_cost(prompt)))
        return self.next_width(prompt)

    def join(self, prompt: int, room: int) -> None:
        self._max_new_tokens = max(self._max_new_tokens, self._new_tokens + room)
        rows = self._model.rows
        self._model.acceptance.limit_weight(max(PRIOR_ROUNDS, MEMORY * rows / (rows + 1)))  # its text is not known

    def record_batch_size(self, rows: int) -> None:
        if self._model.set_batch_size(rows) and self._paused:
            self._gap = self._waited = FIRST_GAP  # drafting costs less than it did, or more

    def next_width(self, lag: int) -> int:
        if self._paused:
            return self._width if self._waited >= self._gap and self._resumes(lag) else 1
        if not self._model.is_based or self._since_autoregressive >= (
            RARE_REFRESH if self._speedup > CLEAR_SPEEDUP else REFRESH
        ):
            return 1
        if self._tried and self._model.is_known:
            self._speedup, self._width = self._model.best(self._width)
            self._on_trial = self._on_trial and self._recent_loss > 0
            if self._recent_loss >= self._patience and (self._on_trial or self._speedup < 1 - TRIAL_SHARE):
                self._gap = FIRST_GAP if self._loss_since_resume < 0 else min(2 * self._gap, LONGEST_GAP)
                self._paused, self._waited = True, 0
                return 1
        return self._width

    def _resumes(self, lag: int) -> bool:
        """Whether to draft after a gap: because it pays again, or to see whether it would."""
        gain, _ = self._model.best(self._width)
        price, left = self._model.trial_cost(lag), self._expected_tokens - self._new_tokens
        pays = gain > 1 + TRIAL_SHARE and price <= (1 - 1 / gain) * self._model.autoregressive.typical * left
        if not pays and self._trial_loss + price > self._budget:
            self._gap, self._waited = min(2 * self._gap, LONGEST_GAP), 0
            return False
        self._recent_loss, self._on_trial = 0.0, not pays
        if not pays:
            self._model.acceptance.limit_weight(1)
            self._recent_loss = self._patience
        self._width, self._tried, self._paused, self._loss_since_resume = self._model.full, False, False, 0.0
        return True

    @property
    def _expected_tokens(self) -> float:
        """Tokens that the generation is expected to have."""
        return min(self._max_new_tokens, max(EXPECTED_NEW_TOKENS, 1.5 * self._new_tokens))

    @property
    def _patience(self) -> float:
        single = self._model.autoregressive.typical
        return LOSS_PATIENCE_ROUNDS * single + min(max(0.0, -self._trial_loss), MAX_SAVED_ROUNDS * single) / 2

    @property
    def _most_saved(self) -> float:
        return max(
            MAX_SAVED_ROUNDS * self._model.autoregressive.typical, self._model.trial_cost(0)
        )  # at least one trial

    @property
    def _budget(self) -> float:
        """Seconds that trials may cost in the generation."""
        return TRIAL_SHARE * self._model.autoregressive.typical * self._expected_tokens

    def record_autoregressive(self, seconds: float) -> None:
        self._model.autoregressive.add(seconds)
        self._new_tokens += 1
        self._waited += 1
        self._since_autoregressive = 0

    def record_verify(self, width: int, seconds: float, accepted: Sequence[int], without: int) -> None:
        speed, tokens = self._model, 1 + sum(accepted) / (len(accepted) + without)
        speed.windows[width].add(seconds)
        speed.acceptance.add(accepted, speed.accepts[width], without)
        self._add_loss(speed.windows[width].typical - tokens * speed.autoregressive.typical)
        self._new_tokens += tokens
        self._since_autoregressive += 1
        self._tried = True

    def record_draft(self, seconds: float) -> None:
        self._model.drafting.add(seconds)
        self._add_loss(self._model.drafting.typical)

    def record_catch_up(self, tokens: int, seconds: float, lost: float) -> None:
        self._model.add_reading(tokens, seconds)
        self._add_loss(lost)

    def _add_loss(self, seconds: float) -> None:
        self._trial_loss = max(self._trial_loss + seconds, -self._most_saved)
        self._loss_since_resume += seconds
        self._recent_loss = max(0.0, self._recent_loss + seconds)
