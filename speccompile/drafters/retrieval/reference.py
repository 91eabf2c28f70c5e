"""Reference: REST's retrieval (section 3 of He et al. 2023), by a search through the whole corpus, token by token.

Only an index of ours has one: a user's proposer may draft anything, and no draft can change a token.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from speccompile.index.files import SEPARATOR, TOKENS, file_name, read_header
from speccompile.index.retrieval import RetrievalPolicy
from speccompile.runtime.devices.engine import Array

Row = tuple[int, ...]


class Corpus:
    """Tokens of a corpus, in chunks, and the policy by which drafts are looked up in it."""

    def __init__(self, folder: Path, policy: RetrievalPolicy) -> None:
        chunks = range(len(read_header(folder).chunks))
        self.chunks = [np.memmap(folder / file_name(chunk, TOKENS), ">u4", "r") for chunk in chunks]
        self.policy = policy

    def texts(self, count: int) -> Iterator[list[int]]:
        """Yield about `count` pieces of documents, from all over the corpus, behind a token that is not theirs."""
        for number in range(count):
            chunk = self.chunks[number % len(self.chunks)]
            place, size = 1 + number * len(chunk) // count, 1 + number % (self.policy.most + 1)
            piece = _document(tuple(chunk[max(place - size, 0) : place][::-1].tolist()))
            if piece:
                yield [int(chunk[0]), *piece[::-1]]

    def propose(self, text: Sequence[int], drafts: int, depth: int) -> tuple[list[int], list[int]]:
        """Return drafts behind a text, and the parent of each: after its longest end of which anything follows."""
        found = [[np.flatnonzero(chunk == text[-1]) for chunk in self.chunks]]
        """Places in all chunks at which ends of the text stand, of one token, of two, .."""
        for back in range(1, min(self.policy.most, len(text))):
            pairs = zip(self.chunks, found[-1], strict=True)
            found.append([its[(its >= back) & (chunk[its - back] == text[-1 - back])] for chunk, its in pairs])
        for places in reversed(found[self.policy.fewest - 1 :]):
            rows = [
                row for chunk, its in zip(self.chunks, places, strict=True) for row in _following(chunk, its, depth)
            ]
            count = min(len(rows), self.policy.occurrences)
            rows = [_document(rows[number * len(rows) // count]) for number in range(count)]
            if any(rows):
                return _vote(rows, drafts, self.policy.branching)
        return [], []


def _following(chunk: Array, places: Array, depth: int) -> list[Row]:
    """Return the `depth` tokens, fewer at the chunk's end, after each place, in order."""
    return sorted(tuple(chunk[place + 1 : place + 1 + depth].tolist()) for place in places)


def _document(row: Row) -> Row:
    return row[: row.index(SEPARATOR)] if SEPARATOR in row else row


def _vote(rows: list[Row], drafts: int, branching: int) -> tuple[list[int], list[int]]:
    """Return the beginnings that most rows have as a tree. Of equals the shorter comes first, then that of the earlier
    parent, then the smaller token. branching: most children of a draft, 0 for no limit."""
    votes = Counter(row[:size] for row in rows for size in range(1, len(row) + 1))
    tree: dict[Row, int] = {(): -1}
    while len(tree) <= drafts:
        children = Counter(path[:-1] for path in tree if path)
        fits = [
            (-count, len(path), tree[path[:-1]], path[-1], path)
            for path, count in votes.items()
            if path not in tree and path[:-1] in tree and children[path[:-1]] < (branching or drafts)
        ]
        if not fits:
            break
        tree[min(fits)[-1]] = len(tree) - 1
    return [path[-1] for path in tree if path], [tree[path[:-1]] for path in tree if path]
