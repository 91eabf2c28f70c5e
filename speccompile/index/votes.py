"""What followed at the occurrences, counted: the prefixes that came most often are the drafts (REST, section 3.2)."""

from collections.abc import Sequence
from heapq import heappop, heappush

ROOT = -1
"""The parent of a draft that follows the text."""

Drafts = tuple[list[int], list[int]]
"""Tokens, and of each its parent: the number of a draft before it, or ROOT."""


def vote(rows: Sequence[Sequence[int]], most: int, branching: int) -> Drafts:
    """The `most` prefixes of the rows that are shared by most of them, as a tree. branching: the most, and best, that
    follow one; 1 for a chain, 0 for any number.

    They come in this order: more rows; of as many, less deep; of as deep, the earlier parent; of one parent, the
    smaller token. So every draft comes behind its parent, and any number of the first ones is a tree too.
    """
    tokens, parents = list[int](), list[int]()
    waiting = list[tuple[int, int, int, int]]()  # -rows, depth, parent, token
    groups: dict[tuple[int, int], Sequence[Sequence[int]]] = {}  # parent, token -> its rows

    def grow(parent: int, depth: int, its: Sequence[Sequence[int]]) -> None:
        below: dict[int, list[Sequence[int]]] = {}
        for row in its:
            if len(row) > depth:
                below.setdefault(row[depth], []).append(row)
        children = sorted((-len(rows), token) for token, rows in below.items())
        for count, token in children[: branching or most]:
            heappush(waiting, (count, depth, parent, token))
            groups[parent, token] = below[token]

    grow(ROOT, 0, rows)
    while waiting and len(tokens) < most:
        _, depth, parent, token = heappop(waiting)
        tokens.append(token)
        parents.append(parent)
        grow(len(tokens) - 1, depth + 1, groups.pop((parent, token)))
    return tokens, parents
