"""Find the occurrences of a text's suffix in a corpus by binary search in memory-mapped suffix arrays.

Tokens are big-endian in their file, so that bytes compare like tokens: a comparison is a slice and a `memcmp`.
"""

import mmap
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speccompile.index.files import SEPARATOR, SUFFIXES, TOKEN_BYTES, TOKENS, Header, file_name, read_header


class Chunk:
    """Chunk of an index: tokens and their suffix array."""

    def __init__(self, folder: Path, number: int) -> None:
        tokens, suffixes = (_mapped(folder / file_name(number, kind)) for kind in (TOKENS, SUFFIXES))
        self._bytes, self.tokens = tokens, np.frombuffer(tokens, ">u4")
        self.suffixes = np.frombuffer(suffixes, "<i4")
        # A memoryview returns a plain integer ten times as fast as an array.
        self._starts = memoryview(suffixes).cast("i") if sys.byteorder == "little" else self.suffixes

    def places(self, pattern: bytes) -> range:
        """Return the range of the suffix array whose suffixes begin with the pattern."""
        tokens, starts, size = self._bytes, self._starts, len(pattern)

        def head(place: int) -> bytes:
            start = TOKEN_BYTES * int(starts[place])
            return tokens[start : start + size]

        everywhere = range(len(starts))
        first = bisect_left(everywhere, pattern, key=head)
        if first == len(starts) or head(first) != pattern:
            return range(0)
        return range(first, bisect_right(everywhere, pattern, first, key=head))


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@dataclass(frozen=True)
class Match:
    """Matched suffix of a text. length: in tokens. places: per chunk the range of the suffix array."""

    length: int
    places: tuple[range, ...]

    @property
    def count(self) -> int:
        """Number of occurrences."""
        return sum(map(len, self.places))


class Index:
    """Opened index. Its memory-mapped files are read on demand."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder, self.header = folder, header
        self._chunks = [Chunk(folder, number) for number in range(len(header.chunks))]

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "Index":
        """Open the index in a folder. verify: check the files' hashes. Raise the BundleError of `read_header`."""
        return cls(Path(folder), read_header(Path(folder), verify=verify))

    def longest_suffix_match(self, text: Sequence[int], fewest: int, most: int) -> Match | None:
        """Return the longest suffix of the text, of `fewest` to `most` tokens, that occurs in the corpus, or None.

        If a suffix occurs, all shorter ones do, so the length is found by binary search.
        """
        most = min(most, len(text))
        if most < fewest:
            return None
        whole = np.array(text[len(text) - most :], ">u4").tobytes()
        length, found = fewest, list[range]()
        for chunk in self._chunks:
            longer, places = _longest_in(chunk, whole, length, most)
            if longer > length:
                length, found = longer, [range(0)] * len(found)
            found.append(places)
        match = Match(length, tuple(found))
        return match if match.count else None

    def continuations(self, match: Match, occurrences: int, depth: int) -> list[list[int]]:
        """Return the continuations of at most `occurrences` occurrences, each of at most `depth` tokens.

        Of n occurrences, in the order of chunks and suffix arrays, those numbered i * n // occurrences are used, for i
        from 0 on. A continuation ends with its document.
        """
        count, rows = match.count, list[list[int]]()
        taken = np.arange(min(count, occurrences)) * count // min(count, occurrences)
        before = 0
        for chunk, places in zip(self._chunks, match.places, strict=True):
            mine = taken[(taken >= before) & (taken < before + len(places))] - before + places.start
            before += len(places)
            if len(mine):
                rows += _following(chunk, chunk.suffixes[mine].astype(np.int64) + match.length, depth)
        return rows


def _longest_in(chunk: Chunk, whole: bytes, fewest: int, most: int) -> tuple[int, range]:
    """Return the length of the longest suffix of `whole` in a chunk, and its range; `fewest` and an empty range if none
    occurs."""
    places = chunk.places(whole[-TOKEN_BYTES * fewest :])
    if not places:
        return fewest, range(0)
    while fewest < most:
        length = (fewest + most + 1) // 2
        found = chunk.places(whole[-TOKEN_BYTES * length :])
        if found:
            fewest, places = length, found
        else:
            most = length - 1
    return fewest, places


def _following(chunk: Chunk, starts: np.ndarray, depth: int) -> list[list[int]]:
    """Return the tokens from each start on, up to `depth` or the end of the document or chunk."""
    ahead = starts[:, None] + np.arange(depth)
    tokens = chunk.tokens[np.minimum(ahead, len(chunk.tokens) - 1)]
    rows = np.where(ahead < len(chunk.tokens), tokens, SEPARATOR).tolist()
    return [row[: row.index(SEPARATOR)] if SEPARATOR in row else row for row in rows]
