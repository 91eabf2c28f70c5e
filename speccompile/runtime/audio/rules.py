"""Tokens that a transcript may have: some are never written, others do not begin one, and times come in pairs.

The masks of a round's nodes are known with its drafts, so that the tokens are the same with and without these. The last
rule of times needs logits and is part of the graph: see `timestamps` in `bundle.sources`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.source_section import MAX_INITIAL, first_timestamp
from speccompile.bundle.sources import AUDIO, TIMESTAMPS
from speccompile.errors import UsageError

Mask = NDArray[np.bool_]
Logits = NDArray[np.float32]


class Written(NamedTuple):
    """State of a text for the rules of times. size: number of its tokens; ends_in_time: its last token is a time;
    was_time: so is the one before, or there is none; time: its last time, a token."""

    size: int = 0
    ends_in_time: bool = False
    was_time: bool = True
    time: int | None = None


@dataclass(frozen=True)
class TimeRules:
    """Rules of times, as of transformers' `WhisperTimeStampLogitsProcessor`. first: token of the time 0.00;
    max_initial: largest first time; end: first token that is no text."""

    first: int
    max_initial: int | None
    end: int

    @classmethod
    def of(cls, manifest: Manifest) -> "TimeRules":
        """Return the rules of a bundle. Raise UsageError for one that writes no times."""
        audio = (manifest.source or {})[AUDIO]
        first = first_timestamp(audio, manifest.vocabulary_size)
        if first is None or not any(tensor.name == TIMESTAMPS for g in manifest.graphs for tensor in g.inputs):
            raise UsageError(
                "timestamps: received true, but this bundle's target has no tokens of times",
                hint="leave timestamps out, or build a Whisper whose generation_config.json has no_timestamps_token_id",
            )
        return cls(first, audio[MAX_INITIAL], min(manifest.eos_token_ids, default=first))

    def after(self, written: Written, token: int) -> Written:
        """Return the state after one more token."""
        is_time = token >= self.first
        before = written.ends_in_time or not written.size
        return Written(written.size + 1, is_time, before, token if is_time else written.time)

    def forbid(self, allowed: Mask, written: Written) -> None:
        """Set the tokens of bool [V] that may not follow to false."""
        allowed[self.first - 1] = False
        if written.ends_in_time and written.was_time:
            allowed[self.first :] = False
        elif written.ends_in_time:
            allowed[: self.end] = False
        if written.time is not None:  # the second of a pair may repeat the first
            is_second = written.ends_in_time and not written.was_time
            allowed[self.first : written.time + (not is_second)] = False
        if not written.size:
            allowed[: self.first] = False
            if self.max_initial is not None:
                allowed[self.first + self.max_initial + 1 :] = False

    def hide_text(self, logits: Logits) -> None:
        """Set float32 [V] logits of text to minus infinity where all times together are more probable than every other
        token."""
        best = logits[self.first :].max(initial=-np.inf)
        if best > -np.inf and best + np.log(np.exp(logits[self.first :] - best).sum()) > logits[: self.first].max():
            logits[: self.first] = -np.inf


class TokenRules:
    """Masks of the tokens that may begin a text, and of those that may follow; and the rules of times, if it has
    any."""

    def __init__(self, first: Mask, later: Mask, times: TimeRules | None = None) -> None:
        """first, later: bool [V]."""
        self.first, self.later, self.times = first, later, times

    @classmethod
    def of(cls, manifest: Manifest, *, timestamps: bool = False) -> "TokenRules | None":
        """Return the rules of a bundle whose target hears, None for others. timestamps: of a text with times. Raise
        UsageError where the target writes none."""
        audio = (manifest.source or {}).get(AUDIO)
        if audio is None:
            return None
        later = ~mask_of(audio["suppressed"], manifest.vocabulary_size)
        first = later & ~mask_of(audio["begin_suppressed"], manifest.vocabulary_size)
        return cls(first, later, TimeRules.of(manifest) if timestamps else None)

    @classmethod
    def only(cls, tokens: Collection[int], size: int) -> "TokenRules":
        """Return rules under which every token is one of these; any, if there are none."""
        mask = mask_of(tokens, size) if tokens else np.ones(size, bool)
        return cls(mask, mask)

    def after(self, written: Written, token: int) -> Written:
        """Return the state after one more token."""
        return Written(written.size + 1) if self.times is None else self.times.after(written, token)

    def allowed(self, written: Written) -> Mask:
        """Return bool [V]: the tokens that may follow."""
        mask = self.later if written.size else self.first
        if self.times is None:
            return mask
        mask = mask.copy()
        self.times.forbid(mask, written)
        return mask

    def apply(self, logits: Logits, written: Written) -> Logits:
        """Return float32 [V] logits after the transcript so far, minus infinity at the tokens that may not follow."""
        found = np.where(self.allowed(written), logits, np.float32(-np.inf))
        if self.times is not None:
            self.times.hide_text(found)
        return found


def mask_of(tokens: Collection[int], size: int) -> Mask:
    """Return bool [V], True at some tokens."""
    mask = np.zeros(size, bool)
    mask[list(tokens)] = True
    return mask


class RuleMatcher:
    """State of one sequence under rules: its transcript so far. See `runtime.constraints.Matcher`."""

    has_failed, is_complete, end = False, False, ""

    def __init__(self, rules: TokenRules, *, keeps_scores: bool = False) -> None:
        """keeps_scores: keep the log-probability of each token among those that were possible, see `scores`."""
        self._rules, self._written, self.reads_logits = rules, Written(), keeps_scores
        self.scores: list[float] = []
        """Natural logarithm of the probability of each token that was chosen, under the rules, at temperature 1."""
        self.first_logits: Logits | None = None
        """Logits float32 [V] of the first token, without rules; None unless it reads logits."""

    @property
    def writes_times(self) -> bool:
        """Return whether the text has times."""
        return self._rules.times is not None

    def accept_tokens(self, tokens: Sequence[int]) -> int:
        """Advance by tokens that were chosen among the allowed ones. Return their number."""
        for token in tokens:
            self._written = self._rules.after(self._written, token)
        return len(tokens)

    def read_logits(self, logits: Logits, tokens: Sequence[int]) -> None:
        """Keep the log-probabilities of tokens that will be accepted. logits: float32 [n, V] before each."""
        written = self._written
        if not written.size:
            self.first_logits = logits[0].copy()
        for row, token in zip(logits, tokens, strict=True):
            possible = self._rules.apply(row, written)
            best = possible.max()
            self.scores.append(float(possible[token] - best - np.log(np.exp(possible - best).sum())))
            written = self._rules.after(written, token)

    def forced_tokens(self, most: int, least: int = 1) -> list[int]:
        """Return no tokens: there are always alternatives."""
        return []

    def write(self, allowed: Mask, drafts: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """Write the tokens that may follow every node of a round into bool [R, V]. parents: of the nodes of a tree, the
        root first."""
        states = [self._written]
        for number, token in enumerate(drafts, 1):
            states.append(self._rules.after(states[number - 1 if parents is None else parents[number]], token))
        for row, mask in enumerate(allowed):
            mask[:] = self._rules.allowed(states[min(row, len(states) - 1)])


def scoring(row: Any) -> RuleMatcher | None:
    """Return the rules of a sequence that read the logits before each of its tokens; None if none do."""
    return row.matcher if isinstance(row.matcher, RuleMatcher) and row.matcher.reads_logits else None


def impose_rules(rows: Sequence[Any], manifest: Manifest, matcher: RuleMatcher | None = None) -> None:
    """Let sequences follow the rules of the bundle's target, if it has any. matcher: of the only sequence, with other
    rules."""
    rules = TokenRules.of(manifest)
    if rules is not None:
        for row in rows:
            row.matcher = matcher or RuleMatcher(rules)
