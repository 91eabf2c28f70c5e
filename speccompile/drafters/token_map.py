"""Tables between the tokens of a target and those of a drafter with another tokenizer (TLI, Timor et al. 2025, 4)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.checkpoints.facts import TOKENIZER
from speccompile.drafters.token_bytes import TokenBytes, read_token_bytes

MAP = "map"
"""Value of `drafter.tokenizer` for drafts among the common tokens, mapped in the graph."""

MAX_EXPANSION = 4
"""Most tokens of the drafter that a token of the target becomes. The last ones stay of more."""
_COVERED = 0.99
"""Share of the target's tokens that become no more than that. Rare ones must not widen the catch-up of all rounds."""
_LONGEST = 64
"""Bytes of a token that are read: the last ones of more. Longer ones are runs of one character."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer as stages of a build see it: tokenizer.json in `folder`. size: number of the model's tokens;
    bos, eos: those for the begin and the end of a text."""

    folder: Path
    size: int
    bos: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()

    def tokens(self) -> TokenBytes:
        """Read the bytes of the tokens. Raise CheckpointError as `read_token_bytes`."""
        return read_token_bytes(self.folder / TOKENIZER)


@dataclass(frozen=True)
class TokenizerPair:
    """Tokenizers of a target and its drafter, which differ."""

    target: Tokenizer
    drafter: Tokenizer


@dataclass(frozen=True)
class TokenMap:
    """Tables of a pair.

    target_ids, drafter_ids int64 [n]: the common tokens, in the order of the target's. to_drafter int64 [V, E]: tokens
    of the drafter for each token of the target, counts int64 [V] of them, 1 to E; zeros behind.
    """

    target_ids: Ids
    drafter_ids: Ids
    to_drafter: Ids
    counts: Ids

    def expanded(self, tokens: list[int]) -> list[int]:
        """Return tokens of the drafter for tokens of the target."""
        return [int(each) for token in tokens for each in self.to_drafter[token, : self.counts[token]]]


@dataclass(frozen=True)
class Overlap:
    """Number of common tokens, and of all tokens of the drafter that stand for text."""

    common: int
    all: int

    def __str__(self) -> str:
        return (
            f"{self.common} of the drafter's {self.all} tokens ({self.common / max(self.all, 1):.1%}) are the target's"
        )


def overlap_of(pair: TokenizerPair) -> Overlap:
    """Count the common tokens. Raise CheckpointError for a tokenizer without bytes."""
    ours, theirs = (side.tokens().by_bytes(side.size) for side in (pair.target, pair.drafter))
    return Overlap(len(ours.keys() & theirs.keys()), len(theirs))


def make_token_map(pair: TokenizerPair) -> TokenMap:
    """Make the tables of a pair. Raise CheckpointError for a tokenizer without bytes."""
    target, drafter = pair.target.tokens(), pair.drafter.tokens()
    theirs = drafter.by_bytes(pair.drafter.size)
    common = {token: theirs[text] for text, token in target.by_bytes(pair.target.size).items() if text in theirs}
    ends = {pair.target.eos[0]: pair.drafter.eos[0]} if pair.target.eos and pair.drafter.eos else {}
    common |= {ours: its for ours, its in ends.items() if ours < pair.target.size and its < pair.drafter.size}
    pairs = sorted(common.items())
    pieces = dict(_pieces(pair, target, drafter, theirs)) | {ours: [its] for ours, its in common.items()}
    width = _width([len(pieces[token]) for token in target.texts if token < pair.target.size])
    unknown = [_unknown(pair.drafter, drafter)]
    rows = [pieces.get(token, unknown)[-width:] for token in range(pair.target.size)]
    return TokenMap(
        np.array([ours for ours, _ in pairs], np.int64),
        np.array([its for _, its in pairs], np.int64),
        np.array([row + [0] * (width - len(row)) for row in rows], np.int64),
        np.array([len(row) for row in rows], np.int64),
    )


def _width(counts: list[int]) -> int:
    """Return E: the fewest tokens to which enough of the target's tokens expand."""
    shares = ((width, np.mean(np.array(counts) <= width)) for width in range(1, MAX_EXPANSION))
    return next((width for width, share in shares if share >= _COVERED), MAX_EXPANSION) if counts else 1


def _pieces(
    pair: TokenizerPair, target: TokenBytes, drafter: TokenBytes, theirs: Mapping[bytes, int]
) -> Iterator[tuple[int, list[int]]]:
    """Yield the drafter's tokens for each token of the target that has some: those that write its bytes; for control
    tokens the one with the same role, else with the same name."""
    unknown, longest = _unknown(pair.drafter, drafter), max(map(len, theirs), default=1)
    for token, text in target.texts.items():
        whole = theirs.get(text)
        yield token, [whole] if whole is not None else split(text[-_LONGEST:], theirs, longest) or [unknown]
    called = {name: token for token, name in drafter.controls.items() if token < pair.drafter.size}
    yield from ((token, [called[name]]) for token, name in target.controls.items() if name in called)
    for ours, its in ((pair.target.bos, pair.drafter.bos), (pair.target.eos, pair.drafter.eos)):
        yield from ((token, [its[0]]) for token in ours if its and its[0] < pair.drafter.size)


def _unknown(drafter: Tokenizer, tokens: TokenBytes) -> int:
    """Return the drafter's token for texts that it cannot write: its own for that, else the end of a text, or its
    beginning."""
    found = (tokens.unknown, *drafter.eos, *drafter.bos)
    return next((token for token in found if token is not None and token < drafter.size), 0)


def split(text: bytes, tokens: Mapping[bytes, int], longest: int) -> list[int]:
    """Return the fewest tokens whose bytes together are `text`, of equally few the ones with the longest first token;
    nothing if there are none. longest: bytes of a token."""
    best: list[tuple[int, int]] = [(0, 0)]  # from each byte on, the last first: number of tokens, bytes of the first
    for start in range(len(text) - 1, -1, -1):
        ends = range(min(len(text), start + longest), start, -1)
        found = [(1 + best[len(text) - end][0], start - end) for end in ends if text[start:end] in tokens]
        best.append(min(found, default=(len(text) + 1, 0)))
    pieces, start = [], 0
    while start < len(text):
        size = -best[len(text) - start][1]
        if size == 0:
            return []
        pieces.append(tokens[text[start : start + size]])
        start += size
    return pieces
