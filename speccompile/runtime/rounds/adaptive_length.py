"""Adaptive draft length: choose the number of draft tokens with the highest measured speed, and stop drafting while
autoregressive rounds are faster. Then retry after gaps that double, as long as trials lose at most a share of the
generation's time, or a little of what drafting has gained before. Costs are measured per number of decoding sequences:
drafts pay with few sequences that do not pay with many.

The draft length changes no token, only when tokens come.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.acceptance_rate import MEMORY
from speccompile.runtime.rounds.speedup_model import SpeedupModel

TRIAL_SHARE = 0.02
"""Share of a generation's time that trials may cost. Drafting stops when it seems slower by more than this share."""

WON_SHARE, MOST_SHARE = 0.1, 0.04
"""Share of what drafts win in other texts that trials may cost besides, and the most that it adds. Where drafts pay as
a rule, a text whose first drafts failed becomes predictable more often than not: small models repeat themselves."""

FIRST_MARGIN, FIRST_TRIAL, FIRST_SHARE = 0.05, 0.12, 0.03
"""A generation begins with drafts if they seem at most the first share slower, and with a trial if at most the second
and if it costs at most the third of the expected time: nothing is known of its text, which may win more than that."""

FIRST_GAP, LONGEST_GAP = 8, 512
"""First and longest gap between two trials, in tokens."""

PRIOR_ROUNDS = 2.0
"""Maximum weight, in rounds, of the acceptance counts of earlier generations."""

EXPECTED_NEW_TOKENS = 128
"""Number of new tokens expected of a generation, at most its limit; a longer one is expected to grow by half again."""

LOSS_PATIENCE_ROUNDS = 2.5
"""Loss, in autoregressive rounds, after which drafting stops. Half of the saved gain is added to it."""

MAX_SAVED_ROUNDS = 6.0
"""Maximum gain, in autoregressive rounds, that is saved for phases in which drafting loses. A predictable text has such
phases, and an unpredictable text may follow a predictable one."""

REFRESH = 32
"""Number of drafting rounds after which one autoregressive round is timed again, because the context grows."""

DECISION_ROUNDS, LOSING_ROUNDS = 8, 4
"""Number of rounds between two decisions about the width, and while drafting loses, a divisor of the first: in Python a
decision costs some 0.04 ms, a third of a small model's round."""

RARE_REFRESH, CLEAR_SPEEDUP = 128, 1.25
"""`RARE_REFRESH` replaces `REFRESH` while the speedup is above `CLEAR_SPEEDUP`."""


class DraftLengthPolicy(Protocol):
    """Interface of a draft-length policy: queried before every round, informed after it. A window is one token and the
    drafts after it."""

    def expect(self, measured: MeasuredAcceptance) -> None:
        """Set the prior: acceptance measured on other texts."""
        ...

    def begin(self, prompt: int, max_new_tokens: int) -> int:
        """Begin a generation with `prompt` prompt tokens and at most `max_new_tokens`. Return the width of the next
        window, as `next_width` does: it decides whether the drafter reads the prompt."""
        ...

    def join(self, prompt: int, max_new_tokens: int) -> None:
        """Add a sequence to those that are decoding. Arguments as for `begin`."""
        ...

    def record_batch_size(self, rows: int) -> None:
        """Set the number of sequences of the following rounds."""
        ...

    def next_width(self, lag: int) -> int:
        """Return the maximum number of tokens of the next window; 1 means no drafts. lag: number of tokens that the
        drafter has to read first to catch up."""
        ...

    @property
    def is_resting(self) -> bool:
        """Return whether the next window has no drafts whatever the drafter's lag: `next_width` need not be asked."""
        ...

    def expect_times(self, times: Mapping[str, Any]) -> None:
        """Set the prior: times of rounds, as `measured_times` returned them in another process on this machine."""
        ...

    def estimated_speedup(self, draft_lengths: Sequence[int], new_tokens: int) -> float | None:
        """Return the estimated speedup of rounds of one sequence over `new_tokens` rounds without drafts.

        draft_lengths: drafts that each round verified; new_tokens: tokens that they gave. None if no round has drafts,
        and while the times are unknown."""
        ...

    def measured_times(self) -> dict[str, Any] | None:
        """Return what rounds cost, in seconds, see `SpeedupModel.measured_times`; None until this process knows."""
        ...

    def record_autoregressive(self, seconds: float | None) -> None:
        """Record the duration of a round without drafts. Here and below, None stands for the first run of a graph at
        some sizes: it allocates and takes two to three times as long as later ones, so its time tells nothing."""
        ...

    def record_verify(self, width: int, seconds: float | None, accepted: Sequence[int], without: int) -> None:
        """Record the time that a round took to verify a window of `width` tokens; with a fused drafter it includes
        drafting. accepted: number of accepted drafts of every sequence that had drafts, for trees see
        `TreeAcceptance.add`; without: number of sequences without drafts."""
        ...

    def record_draft(self, seconds: float | None) -> None:
        """Record the time that the drafts of the next round took."""
        ...

    def record_catch_up(self, tokens: int, seconds: float, lost: float) -> None:
        """Record that the drafter read `tokens` tokens in `seconds`. lost: the seconds of it that decoding without
        drafts saves; 0 for the first run at some sizes, see `record_autoregressive`."""
        ...


class AdaptiveDraftLength:
    """Draft-length policy by measured times. Times and a little of the gain carry over to the next generation."""

    def __init__(self, accepts: Mapping[int, int], *, fused: bool = False, tree_depth: int = 0) -> None:
        """Take the arguments of `SpeedupModel`."""
        self._model = SpeedupModel(accepts, fused=fused, tree_depth=tree_depth)
        self._width = self._model.full
        self._paused = self._tried = self._on_trial = False
        self._gap = self._waited = FIRST_GAP
        self._since_autoregressive, self._since_decision = 0, DECISION_ROUNDS
        self._max_new_tokens = self._new_tokens = 0.0
        self._speedup = 1.0
        self._has_paused = False
        self._unread: list[tuple[int, float | None, Sequence[int], int]] = []
        """Arguments of `record_verify` of rounds that no decision has needed yet, and of `record_draft` with width 0:
        read together they cost a third of what each costs between two runs."""
        self._rested: list[float | None] = []
        """Arguments of `record_autoregressive` of such rounds, while drafting is paused."""
        self._trial_loss = self._loss_since_resume = self._recent_loss = 0.0
        """Seconds that drafting has lost compared with autoregressive rounds; negative for a gain. `_trial_loss`:
        across generations, less the allowance of trials; `_loss_since_resume`: since drafting resumed; `_recent_loss`:
        since it last paid, never negative."""

    def expect(self, measured: MeasuredAcceptance) -> None:
        self._model.acceptance.expect(measured)

    def expect_times(self, times: Mapping[str, Any]) -> None:
        self._model.expect_times(times)

    def estimated_speedup(self, draft_lengths: Sequence[int], new_tokens: int) -> float | None:
        self._read_rounds()
        return self._model.estimated_speedup(draft_lengths, new_tokens)

    def measured_times(self) -> dict[str, Any] | None:
        self._read_rounds()
        return self._model.measured_times()

    def begin(self, prompt: int, max_new_tokens: int) -> int:
        self._read_rounds()
        self._trial_loss -= TRIAL_SHARE * self._model.autoregressive.typical * self._new_tokens
        self._max_new_tokens, self._new_tokens = max_new_tokens, 0.0
        self._model.acceptance.limit_weight(PRIOR_ROUNDS)
        self._has_paused = False
        self._gap = self._waited = FIRST_GAP
        self._width, self._tried, self._paused, self._recent_loss = self._model.full, False, self._model.is_known, 0.0
        if not self._paused:
            return self._width
        self._trial_loss = max(self._trial_loss, -max(self._most_saved, self._model.trial_cost(prompt)))
        return self.next_width(prompt)

    def join(self, prompt: int, max_new_tokens: int) -> None:
        self._read_rounds()
        self._max_new_tokens = max(self._max_new_tokens, self._new_tokens + max_new_tokens)
        rows = self._model.rows
        self._model.acceptance.limit_weight(max(PRIOR_ROUNDS, MEMORY * rows / (rows + 1)))  # its acceptance is unknown

    def record_batch_size(self, rows: int) -> None:
        if rows != self._model.rows:
            self._read_rounds()  # of the former number
        if self._model.set_batch_size(rows) and self._paused:
            self._gap = self._waited = FIRST_GAP  # the cost of drafting has changed

    def next_width(self, lag: int) -> int:
        if self._paused:
            return 1 if self.is_resting or not self._resumes(lag) else self._width
        if not self._model.is_based or self._since_autoregressive >= (
            RARE_REFRESH if self._speedup > CLEAR_SPEEDUP else REFRESH
        ):
            return 1
        if self._since_decision % LOSING_ROUNDS and not self._on_trial:
            return self._width
        self._read_rounds()
        self._trial_loss = max(self._trial_loss, -self._most_saved)
        self._on_trial = self._on_trial and self._recent_loss > 0
        is_losing = self._recent_loss >= self._patience
        wait = 0 if self._on_trial else LOSING_ROUNDS if is_losing else DECISION_ROUNDS
        if self._tried and self._since_decision >= wait and self._model.is_known:
            self._speedup, self._width = self._model.best(self._width)
            self._since_decision = 0
            if is_losing and (self._on_trial or self._speedup < 1 - TRIAL_SHARE):
                if not self._on_trial:  # drafts were expected to pay: their loss takes nothing from later trials
                    self._trial_loss = min(self._trial_loss, 0.0)
                is_first = not self._has_paused or self._loss_since_resume < 0
                self._gap = FIRST_GAP if is_first else min(2 * self._gap, LONGEST_GAP)
                self._has_paused = True
                self._paused, self._waited = True, 0
                return 1
        return self._width

    @property
    def is_resting(self) -> bool:
        return self._paused and self._waited + len(self._rested) < self._gap

    def _resumes(self, lag: int) -> bool:
        """Resume drafting after a gap if it pays again, or for a trial. Return whether drafting has resumed."""
        self._read_rounds()
        begins = not self._new_tokens
        if not begins:
            self._model.acceptance.halve()
        gain, width = self._model.best(self._model.full)
        price, left = self._model.trial_cost(lag), self._expected_tokens - self._new_tokens
        pays = gain > 1 + TRIAL_SHARE and price <= (1 - 1 / gain) * self._model.autoregressive.typical * left
        pays = pays or (begins and gain > 1 - FIRST_MARGIN)
        first_share = FIRST_SHARE if begins and gain > 1 - FIRST_TRIAL else 0.0
        if not pays and not self._may_try(price, first_share):
            # Rounds without drafts tell nothing of a text: drafts that did not pay at its beginning hardly do soon.
            self._gap, self._waited = min((4 if begins else 2) * self._gap, LONGEST_GAP), 0
            return False
        self._recent_loss, self._on_trial = 0.0, not pays
        if not pays:
            self._model.acceptance.limit_weight(1)
            self._recent_loss = self._patience
        # A round with all nodes of a tree may cost as much as several narrower ones; one that is a little wider shows
        # whether it would pay.
        self._width = self._model.wider(width) if self._model.is_tree else self._model.full
        self._tried, self._paused, self._loss_since_resume = False, False, 0.0
        self._since_decision = 0 if width == self._width else DECISION_ROUNDS  # one round shows what all widths accept
        return True

    @property
    def _expected_tokens(self) -> float:
        """Return the expected number of new tokens of the generation."""
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

    def _may_try(self, price: float, first_share: float) -> bool:
        """Return whether a trial may cost `price` seconds: that share of the expected time in any case, or what trials
        may. The usual gain is asked for only where it decides: it takes Python as long as all else here."""
        expected = self._model.autoregressive.typical * self._expected_tokens
        share = (self._trial_loss + price) / expected - TRIAL_SHARE
        return (
            price <= first_share * expected
            or share <= 0
            or (share <= MOST_SHARE and share <= WON_SHARE * (self._model.usual_gain - 1))
        )

    def record_autoregressive(self, seconds: float | None) -> None:
        if self._paused and not self._unread:
            self._rested.append(seconds)
        else:
            self._read_rounds()
            self._add_autoregressive(seconds)

    def _add_autoregressive(self, seconds: float | None) -> None:
        if seconds is not None:
            self._model.add_autoregressive(seconds)
        # Also by an expected time: a second round without drafts would cost more than it tells.
        if self._since_autoregressive and self._model.is_based:
            self._since_autoregressive = 0
        self._new_tokens += 1
        self._waited += 1

    def record_verify(self, width: int, seconds: float | None, accepted: Sequence[int], without: int) -> None:
        self._unread.append((width, seconds, accepted, without))
        self._since_autoregressive += 1
        self._since_decision += 1

    def record_draft(self, seconds: float | None) -> None:
        self._unread.append((0, seconds, (), 0))

    def record_catch_up(self, tokens: int, seconds: float, lost: float) -> None:
        self._read_rounds()
        self._model.add_reading(tokens, seconds)
        self._add_loss(lost)

    def _read_rounds(self) -> None:
        """Take the recorded rounds into account: those without drafts, then those that drafted."""
        rested, self._rested = self._rested, []
        for each in rested:
            self._add_autoregressive(each)
        rounds, self._unread = self._unread, []
        if not rounds:
            return
        model, drafting, single = self._model, self._model.drafting, self._model.autoregressive.typical
        for width, seconds, accepted, without in rounds:
            times = model.windows[width] if width else drafting
            if seconds is not None:
                times.add(seconds)
            if not width:
                self._add_loss(times.typical)
                continue
            limit = model.accepts[width]
            drafts = accepted[limit - 1 :: limit or 1] if model.is_tree else accepted
            tokens = 1 + sum(drafts) / (len(drafts) + without)
            model.acceptance.add(accepted, limit, without)
            if times.count:
                self._add_loss(times.typical - tokens * single)
            self._new_tokens += tokens
            self._tried = True

    def _add_loss(self, seconds: float) -> None:
        self._trial_loss += seconds
        self._loss_since_resume += seconds
        self._recent_loss = max(0.0, self._recent_loss + seconds)
