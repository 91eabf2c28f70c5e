"""Vote on continuations: the most frequent prefixes become the drafts (REST, section 3.2)."""

from collections.abc import Sequence
from heapq import heappop, heappush

ROOT = -1
"""Parent of a draft that directly follows the text."""

Drafts = tuple[list[int], list[int]]
"""Tokens, and the parent of each: index of an earlier draft, or ROOT."""


def vote(rows: Sequence[Sequence[int]], most: int, branching: int) -> Drafts:
    """Return the `most` most frequent prefixes of the rows as a tree. branching: maximum number of children, the most
    frequent ones; 1 for a chain, 0 for no limit.

    Order: more rows first; then lower depth; then the earlier parent; then the smaller token. So every draft follows
    its parent, and every prefix of the list is a tree, too.
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
