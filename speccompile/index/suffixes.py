"""Suffix arrays by prefix doubling (Manber and Myers 1990), which sorts only unresolved groups again (Larsson and
Sadakane 1999)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def suffix_array(tokens: Array) -> Array:
    """Return the start positions of all suffixes in sorted order, int32 [n]. tokens: uint32 [n], n from 1 to below
    2**31 - 1. A suffix that is a prefix of another one comes first.

    Worst case, for a text of one repeated token: log n sorts of n tokens. Memory: about 50 bytes a token.
    """
    suffixes = np.argsort(tokens, kind="stable").astype(np.int32)
    rank = np.empty(len(tokens), np.int32)
    begins = _changes(tokens[suffixes])
    rank[suffixes] = _group_starts(np.arange(len(tokens), dtype=np.int32), begins)
    open_ = np.flatnonzero(~_alone(begins)).astype(np.int32)  # positions of suffixes with equal ranks
    known = 1  # number of leading tokens that are sorted
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
    """Return whether each key differs from the one before it, bool [n]."""
    changes = np.empty(len(keys), bool)
    changes[0] = True
    np.not_equal(keys[1:], keys[:-1], out=changes[1:])
    return changes


def _alone(begins: Array) -> Array:
    """Return which members are alone in their group, bool [n]. begins: whether a group begins at a position."""
    ends = np.empty(len(begins), bool)
    ends[-1], ends[:-1] = True, begins[1:]
    return begins & ends


def _group_starts(places: Array, begins: Array) -> Array:
    """Return for every member the place of its group's first member, int32 [n]; `places` ascend."""
    return np.maximum.accumulate(np.where(begins, places, 0))
