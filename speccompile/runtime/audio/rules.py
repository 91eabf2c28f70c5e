"""Tokens that a transcript may have: some are never written, others do not begin one.

The masks of a round's nodes are known with its drafts, so that the tokens are the same with and without these.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO

Mask = NDArray[np.bool_]


class TokenRules:
    """Masks of the tokens that may begin a text, and of those that may follow."""

    def __init__(self, first: Mask, later: Mask) -> None:
        """first, later: bool [V]."""
        self.first, self.later = first, later

    @classmethod
    def of(cls, manifest: Manifest) -> "TokenRules | None":
        """Return the rules of a bundle whose target hears, None for others."""
        audio = (manifest.source or {}).get(AUDIO)
        if audio is None:
            return None
        later = ~mask_of(audio["suppressed"], manifest.vocabulary_size)
        return cls(later & ~mask_of(audio["begin_suppressed"], manifest.vocabulary_size), later)

    @classmethod
    def only(cls, tokens: Collection[int], size: int) -> "TokenRules":
        """Return rules under which every token is one of these."""
        mask = mask_of(tokens, size)
        return cls(mask, mask)

    def apply(self, logits: NDArray[np.float32], new_tokens: int) -> NDArray[np.float32]:
        """Return float32 [V] logits after so many new tokens, minus infinity at those that may not follow."""
        return np.where(self.later if new_tokens else self.first, logits, np.float32(-np.inf))


def mask_of(tokens: Collection[int], size: int) -> Mask:
    """Return bool [V], True at some tokens."""
    mask = np.zeros(size, bool)
    mask[list(tokens)] = True
    return mask


class RuleMatcher:
    """State of one sequence under rules: the number of its new tokens. See `runtime.constraints.Matcher`."""

    has_failed, is_complete, end = False, False, ""

    def __init__(self, rules: TokenRules) -> None:
        self._rules, self._new_tokens = rules, 0

    def accept_tokens(self, tokens: Sequence[int]) -> int:
        """Advance by tokens that were chosen among the allowed ones. Return their number."""
        self._new_tokens += len(tokens)
        return len(tokens)

    def forced_tokens(self, most: int, least: int = 1) -> list[int]:
        """Return no tokens: there are always alternatives."""
        return []

    def write(self, allowed: Mask, drafts: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """Write the tokens that may follow every node of a round into bool [R, V]."""
        allowed[:] = self._rules.later
        if not self._new_tokens:
            allowed[0] = self._rules.first


def impose_rules(rows: Sequence[Any], manifest: Manifest) -> None:
    """Let sequences follow the rules of the bundle's target, if it has any."""
    rules = TokenRules.of(manifest)
    if rules is not None:
        for row in rows:
            row.matcher = RuleMatcher(rules)
