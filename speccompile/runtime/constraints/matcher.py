"""State of a sequence in its grammar."""

from collections.abc import Collection, Sequence
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import UsageError
from speccompile.tree import chain

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = NDArray[np.bool_]
_LONGEST = 200
"""Maximum number of characters of llguidance's message in an error."""
_BITS = 32
"""Number of tokens in one integer of llguidance's masks."""


class Vocabulary(NamedTuple):
    """Vocabulary and its end tokens. size: V, padding included. stop_ids: tokens that end a sequence. eos_ids:
    llguidance's end tokens: all of the model's, and another one if the model has none."""

    size: int
    stop_ids: frozenset[int]
    eos_ids: frozenset[int]


class Matcher:
    """State of one sequence in its grammar. Tokens that end a generation are never part of the text."""

    def __init__(self, inner: "LLMatcher", vocabulary: Vocabulary, failed: Event | None = None) -> None:
        self._inner, self._vocabulary, self._failed = inner, vocabulary, failed or Event()
        self._bits = np.empty((-(-vocabulary.size // _BITS)), np.int32)
        self._next: Mask | None = None
        """`mask` if it has been computed since the last token."""

    def copy(self, ends: Collection[int]) -> "Matcher":
        """Return a copy in the same state, for a sequence that ends with those of the model's end tokens that are in
        `ends`."""
        own = self._vocabulary._replace(stop_ids=self._vocabulary.stop_ids & frozenset(ends))
        return Matcher(self._inner.deep_copy(), own, self._failed)

    @property
    def has_failed(self) -> bool:
        """Return whether this matcher or a copy has failed. Copies share the states of their grammar, and a limit on
        them: once it is reached, all may fail."""
        return self._failed.is_set()

    @property
    def is_complete(self) -> bool:
        """Return whether the text is complete and nothing can follow."""
        return bool(self._inner.is_stopped())

    @property
    def end(self) -> str:
        """Finish reason of the sequence here, or "". `stop`: the text is complete and nothing can follow. `capacity`:
        it is not complete and no token of the vocabulary can follow. Raise UsageError if the parser has failed, as at
        a limit of llguidance: only this sequence ends."""
        goes_on = not self._inner.is_error() and not self.is_complete and self.allows_any()
        if self._inner.is_error():  # also by the mask that has just been computed
            self._failed.set()
            said = " ".join(self._inner.get_error().split())[:_LONGEST]
            raise UsageError(
                f"constraint: llguidance cannot go on with this grammar: {said}",
                hint="ask for a simpler form, or for fewer tokens",
            )
        if goes_on:
            return ""
        return "stop" if self._inner.is_accepting() else "capacity"

    def allows_any(self) -> bool:
        """Return whether some token that is no end token may follow."""
        mask = self.mask()
        return bool(np.count_nonzero(mask) > np.count_nonzero(mask[list(self._vocabulary.stop_ids)]))

    def mask(self) -> Mask:
        """Return bool [V], read-only: the tokens that may follow. End tokens are allowed only if the text may be
        complete."""
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
        """Advance by tokens that were chosen among the allowed ones. Return their number until the text is complete:
        later tokens were chosen freely."""
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
        """Return the next tokens that have no alternative, at most `most`, and advance by them. If there are fewer than
        `least`, return none and stay."""
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
        """Write the tokens that may follow every node of a round into bool [R, V]. Allow all where it does not matter:
        after drafts that are not allowed, which are never accepted, after drafts that end the text, and after the last
        node.

        drafts: tokens of node 1, 2, ..; parents: of all nodes, -1 for the root, by default those of a chain. The
        matcher's state does not change.
        """
        allowed[:] = True
        children = [list[int]() for _ in range(len(drafts) + 1)]
        behind = chain(len(drafts)).parents if parents is None else parents
        for node, parent in enumerate(behind[1 : len(drafts) + 1], 1):
            children[parent].append(node)
        self._fill(allowed, drafts, children)

    def _fill(self, allowed: Mask, drafts: Sequence[int], children: Sequence[Sequence[int]]) -> None:
        """Fill the masks depth first: a node's own row, then its children, each accepted and rolled back."""
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
        """Accept a draft if it is allowed and text can follow it, which is so of no end token. Return whether it was
        accepted."""
        if not self._inner.validate_tokens([draft]):
            return False
        self._inner.consume_token(draft)
        if self.is_complete:
            self._inner.rollback(1)
            return False
        return True
