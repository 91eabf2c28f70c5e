"""How far a row's new tokens are in its grammar."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.tree import chain

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = NDArray[np.bool_]
_BITS = 32
"""Tokens of one number of llguidance's masks."""


class Vocabulary(NamedTuple):
    """size: V, padding included. ends: tokens that end a row. known: what llguidance takes for such ones, all of the
    model's, and another where it has none."""

    size: int
    stop_ids: frozenset[int]
    eos_ids: frozenset[int]


class Matcher:
    """One row's place in its grammar. Tokens that end a generation are never part of the text."""

    def __init__(self, inner: "LLMatcher", vocabulary: Vocabulary) -> None:
        self._inner, self._vocabulary = inner, vocabulary
        self._bits = np.empty((-(-vocabulary.size // _BITS)), np.int32)
        self._next: Mask | None = None
        """`mask` where it has been asked for since the last token."""

    def copy(self, ends: Collection[int]) -> "Matcher":
        """Another one, at the same place, of a row that ends with these tokens of the model's, and more."""
        own = self._vocabulary._replace(stop_ids=self._vocabulary.stop_ids & frozenset(ends))
        return Matcher(self._inner.deep_copy(), own)

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole and nothing can follow."""
        return bool(self._inner.is_stopped())

    @property
    def end(self) -> str:
        """Why the row ends here, empty where it goes on: `stop`, where the text is whole and nothing can follow;
        `capacity`, where it is not and nothing of this vocabulary can, or the parser has reached its limits."""
        if self._inner.is_error():
            return "capacity"
        if not self.is_complete and self.allows_any():
            return ""
        return "stop" if self._inner.is_accepting() else "capacity"

    def allows_any(self) -> bool:
        """Whether some token may follow that ends nothing."""
        mask = self.mask()
        return bool(np.count_nonzero(mask) > np.count_nonzero(mask[list(self._vocabulary.stop_ids)]))

    def mask(self) -> Mask:
        """bool [V], read-only: which tokens may follow; those that end the generation only where the text may be
        whole."""
        if self._next is None:
            self._next = self._mask()
        return self._next

    def _mask(self) -> Mask:
        self._inner.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        found: Mask = np.unpackbits(self._bits.view(np.uint8), count=self._vocabulary.size, bitorder="little").view(
            bool
        )
        known, ends = self._vocabulary.eos_ids, self._vocabulary.stop_ids
        found[list(known - ends if self._inner.is_accepting() else known)] = False
        return found

    def accept_tokens(self, tokens: Sequence[int]) -> int:
        """Go on by tokens that were chosen among the allowed ones. Returns how many of them there are until the text is
        complete: what lies behind was chosen freely."""
        for number, token in enumerate(tokens):
            if token in self._vocabulary.stop_ids:
                return number + 1
            self._next = None
            if not self._inner.consume_token(token):
                return number
            if self.is_complete:
                return number + 1
        return len(tokens)

    def forced_tokens(self, most: int, least: int = 1) -> list[int]:
        """The next tokens that have no alternative, at most so many, and go on by them; none where there are fewer than
        `least`."""
        found = list[int]()
        for token in self._inner.compute_ff_tokens()[:most]:
            mask = self.mask()
            if not mask[token] or np.count_nonzero(mask) > 1:
                break
            self._inner.consume_token(token)
            self._next = None
            found.append(token)
            if self.is_complete:
                break
        if len(found) < least:
            self._inner.rollback(len(found))
            self._next = None
            return []
        return found

    def write(self, allowed: Mask, drafts: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """Which tokens may follow every node of a round, into bool [R, V]; all of them where it does not matter: behind
        drafts that are not allowed, which are not accepted, behind those that end the text, and behind the last node.

        drafts: the tokens of node 1, 2, ..; parents: of all nodes, -1 for the root, by default those of a chain. The
        matcher stays where it is.
        """
        allowed[:] = True
        children = [list[int]() for _ in range(len(drafts) + 1)]
        behind = chain(len(drafts)).parents if parents is None else parents
        for node, parent in enumerate(behind[1 : len(drafts) + 1], 1):
            children[parent].append(node)
        self._fill(allowed, drafts, children)

    def _fill(self, allowed: Mask, drafts: Sequence[int], children: Sequence[Sequence[int]]) -> None:
        """Depth first: a node's own row, then its children, each taken and taken back."""
        todo = [(0, 0)]
        depth = 0
        while todo:
            node, at = todo.pop()
            self._inner.rollback(depth - at)
            depth = at
            if node and not self._enter(drafts[node - 1]):
                continue
            depth += node > 0
            if node < len(allowed):
                allowed[node] = self._mask() if depth else self.mask()
            todo += [(child, depth) for child in reversed(children[node])]
        self._inner.rollback(depth)

    def _enter(self, draft: int) -> bool:
        """Take a draft, if it is allowed and the text goes on behind it."""
        if draft in self._vocabulary.eos_ids or not self._inner.validate_tokens([draft]):
            return False
        self._inner.consume_token(draft)
        if self.is_complete:
            self._inner.rollback(1)
            return False
        return True
