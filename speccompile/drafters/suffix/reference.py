"""Reference: SuffixDecoding's votes (section 4 of Oliaro et al. 2024) over lists: occurrences of the text's end, a trie
of what followed for each of several lengths, and the trie whose drafts have most votes.

Shares are whole numbers of 1 / ONE, as on every engine. Earlier answers are lanes of a limited length, as the recipe's
`remember` says: which of them are still there decides what is drafted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import NamedTuple

from speccompile.compiler.prove.plain_drafts import PlainDrafter, PlainDrafts, SlotRound
from speccompile.drafters.context import DrafterContext
from speccompile.plan.plan import SuffixPlan

ONE = 1 << 16
OCCURRENCES = 32
"""Least number of occurrences that may vote."""

Path = tuple[int, ...]
Occurrence = tuple[int, Path]
"""Match length of an occurrence, and what followed it."""


class Voted(NamedTuple):
    """The drafts that a vote chose, as paths in their order; their shares; and the match length."""

    paths: list[Path]
    shares: list[int]
    matched: int


@dataclass
class Lane:
    """Earlier answers of a batch slot, apart by None. limit: of tokens, after which it is written from the beginning.
    place: of the next token; end: length of the text of the last answer; is_open: whether that may go on."""

    limit: int
    entries: list[int | None]
    place: int = 0
    end: int = 0
    is_open: bool = False

    def write(self, read: SlotRound, widest: int) -> None:
        """Write the tokens of a round. A window wider than `widest` is a prompt, unless it continues an answer."""
        self.place = self.place if self.place < self.limit else 0
        path, goes_on = read.path, self.is_open and self.end == read.start
        if len(path) == 1:
            return
        self.is_open, self.end = goes_on or read.width <= widest, read.start + len(path) - 1
        if self.is_open:
            piece = [*([] if goes_on else [None]), *path[:-1]]
            self.entries[self.place : self.place + len(piece) + 1] = [*piece, None]
            self.place += len(piece)


@dataclass
class Votes:
    """The drafter. depth, tokens: of the drafts; lanes: of earlier answers, one for each batch slot, or none."""

    plan: SuffixPlan
    threshold: float
    top_k: int
    depth: int
    tokens: int
    is_chain: bool = True
    lanes: list[Lane] = field(default_factory=list)

    def __call__(self, rounds: Sequence[SlotRound]) -> list[PlainDrafts]:
        for lane, each in zip(self.lanes, rounds, strict=bool(self.lanes)):
            lane.write(each, self.tokens + 1)
        return [self._drafts(each.known) for each in rounds]

    def _drafts(self, text: list[int]) -> PlainDrafts:
        if self.plan.look_again:
            return PlainDrafts(self._look_again(text))
        found = self._vote(text, self.plan, int(self.threshold * ONE), self.tokens, self.depth)
        place = {path: node for node, path in enumerate([(), *found.paths])}
        parents = None if self.is_chain else [place[path[:-1]] for path in found.paths]
        return PlainDrafts([path[-1] for path in found.paths], parents)

    def _look_again(self, text: list[int]) -> list[int]:
        """Return the winners of a vote for each draft, behind the drafts before it."""
        longer, share, budget = list(text), ONE, 1
        one = SuffixPlan(self.plan.match, 0.0, 1.0, False, 0)
        while len(longer) - len(text) < budget:
            found = self._vote(longer, one, 0, 1, 1)
            if not found.paths:
                break
            if len(longer) == len(text):
                budget = _budget(self.plan, found.matched, self.tokens)
                share = found.shares[0]
            else:
                share = found.shares[0] * share // ONE
            if budget == 0 or share < int(self.threshold * ONE):
                break
            longer.append(found.paths[0][0])
        return longer[len(text) :]

    def _vote(self, text: list[int], plan: SuffixPlan, threshold: int, nodes: int, depth: int) -> Voted:
        """Return the best drafts of the longest suffixes with 1, 2, 4, .. occurrences: first those in the text."""
        best = Voted([], [], 0)
        many = max(OCCURRENCES, self.top_k, -(-nodes // depth))
        for find in (in_text(text, plan.match, depth), in_lanes(self.lanes, text, plan.match, depth)):
            found = list(islice(find, many))
            for support in (1 << power for power in range(len(found).bit_length())):
                matched = found[support - 1][0]
                followed = [after for length, after in found if length >= matched]
                drafts = self._nodes(followed, threshold, depth)[: _budget(plan, matched, nodes)]
                shares = [_share(followed, path) for path in drafts]
                if sum(shares) > sum(best.shares):
                    best = Voted(drafts, shares, matched)
        return best

    def _nodes(self, followed: list[Path], threshold: int, depth: int) -> list[Path]:
        """Return the nodes of a trie with enough votes: those with most, the less deep, of the best occurrence."""
        level, nodes = [Path()], list[Path]()
        for size in range(1, depth + 1):
            votes = Counter(path[:size] for path in followed if len(path) >= size)  # in the order of the occurrences
            children = [[path for path, _ in votes.most_common() if path[:-1] == above] for above in level]
            level = [path for each in children for path in each[: self.top_k]]
            nodes += [path for path in votes if path in level]
        kept = [path for path in nodes if _share(followed, path) >= threshold]
        return sorted(kept, key=lambda path: -_count(followed, path))


def drafter(context: DrafterContext) -> PlainDrafter:
    """Return the drafter of the plan."""
    plan, shape = context.drafter, context.shape
    assert plan.suffix is not None, "the plan decides it"
    lane = plan.suffix.remember // shape.batch_size
    size = lane + shape.rows - shape.max_length + 2  # rows beyond max_length hold the widest window
    lanes = [Lane(lane, [None] * size) for _ in range(shape.batch_size if lane else 0)]
    is_chain, top_k = plan.tree.parents is not None, plan.tree.top_k or 1
    return Votes(plan.suffix, plan.threshold or 0.0, top_k, plan.tree.depth, plan.tokens, is_chain, lanes)


def _budget(plan: SuffixPlan, matched: int, most: int) -> int:
    return max(0, min(most, int(plan.factor * matched + plan.offset + 1e-6)))


def _count(followed: list[Path], path: Path) -> int:
    return sum(each[: len(path)] == path for each in followed)


def _share(followed: list[Path], path: Path) -> int:
    return _count(followed, path) * ONE // len(followed)


def in_text(text: list[int], most: int, depth: int) -> Iterator[Occurrence]:
    """Yield the occurrences of the text's end in the text, the longest first, of equal ones the latest; what follows
    goes on with itself at the end."""
    found = [(_matched(text, place, text, most), place) for place in range(len(text) - 1)]
    for matched, place in sorted(found, reverse=True):
        longer = list(text)
        for _ in range(depth):
            longer.append(longer[len(longer) - (len(text) - 1 - place)])
        if matched:
            yield matched, tuple(longer[place + 1 : place + 1 + depth])


def in_lanes(lanes: list[Lane], text: list[int], most: int, depth: int) -> Iterator[Occurrence]:
    """Yield the occurrences in earlier answers as `in_text`, of equally late ones the last lane's; an answer ends with
    None."""
    found = list[tuple[int, int, int, Lane, int]]()
    for number, lane in enumerate(lanes):
        for place in range(len(lane.entries)):
            age = (place - lane.place) % len(lane.entries)
            found.append((_matched(lane.entries, place, text, most), age, number, lane, place))
    for matched, _, _, lane, place in sorted(found, key=lambda each: each[:3], reverse=True):
        if matched:
            following = takewhile(lambda each: each is not None, lane.entries[place + 1 : place + 1 + depth])
            yield matched, tuple(each for each in following if each is not None)


def _matched(entries: Sequence[int | None], place: int, text: list[int], most: int) -> int:
    """Return the number of tokens, at most `most`, with which the entries up to a place and the text end."""
    size = 0
    while size < min(most, place + 1, len(text)) and entries[place - size] == text[-1 - size]:
        size += 1
    return size
