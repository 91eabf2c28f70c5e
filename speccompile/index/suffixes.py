"""Suffix arrays by prefix doubling (Manber and Myers 1990), of the groups alone that are not told apart yet (Larsson
and Sadakane 1999)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MOST_TOKENS = 2**31 - 1
"""That a suffix array counts in int32."""


def suffix_array(tokens: Array) -> Array:
    """int32 [n]: where each suffix of the tokens, uint32 [n], begins, in their order; one that ends is before all that
    go on. n is at least 1 and below `MOST_TOKENS`.

    Time is O(n log n) sorts at worst, of a text that repeats one token; memory about 50 bytes a token.
    """
    suffixes = np.argsort(tokens, kind="stable").astype(np.int32)
    rank = np.empty(len(tokens), np.int32)
    begins = _changes(tokens[suffixes])
    rank[suffixes] = _group_starts(np.arange(len(tokens), dtype=np.int32), begins)
    open_ = np.flatnonzero(~_alone(begins)).astype(np.int32)  # places whose suffix shares its rank with another
    known = 1  # tokens by which suffixes are sorted
    while len(open_):
        starts = suffixes[open_]
        ahead = starts.astype(np.int64) + known
        behind = np.where(ahead < len(tokens), rank[np.minimum(ahead, len(tokens) - 1)].astype(np.int64) + 1, 0)
        keys = (rank[starts].astype(np.int64) << 32) | behind
        order = np.argsort(keys)
        starts, begins = starts[order], _changes(keys[order])
        suffixes[open_] = starts
        rank[starts] = _group_starts(open_, begins)
        open_ = open_[~_alone(begins)]
        known *= 2
    return suffixes


def _changes(keys: Array) -> Array:
    """bool [n]: whether a key is not the one before it."""
    changes = np.empty(len(keys), bool)
    changes[0] = True
    np.not_equal(keys[1:], keys[:-1], out=changes[1:])
    return changes


def _alone(begins: Array) -> Array:
    """bool [n]: which groups have one member, by where groups begin."""
    ends = np.empty(len(begins), bool)
    ends[-1], ends[:-1] = True, begins[1:]
    return begins & ends


def _group_starts(places: Array, begins: Array) -> Array:
    """int32 [n]: of every member the place of its group's first; `places` ascend."""
    return np.maximum.accumulate(np.where(begins, places, 0))
