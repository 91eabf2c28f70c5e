"""Acceptance rate of drafts at each depth, from the rounds of the current text and of all texts."""

import math
from collections.abc import Iterable, Sequence

from speccompile.bundle.acceptance import MeasuredAcceptance

MEMORY = 20
"""Number of rounds of the current text that count, recent ones most."""

LONG_MEMORY = 100
"""Number of rounds of all texts that count."""

PRIOR_WEIGHT = 10.0
"""Weight, in rounds of the current text, of what other texts have shown."""

PRIOR_ACCEPTANCE = 0.8
"""Acceptance rate assumed before anything is measured; it counts for one round."""


LARGEST_UNIT = 1e6
"""The weight of a new round, beyond which all counts are divided by it."""


class AcceptanceCounts:
    """Drafts tried and accepted at each depth, after accepted predecessors; sequences and rounds, all of them and those
    with drafts. Recent rounds count most: a round weighs `unit`, which grows, and all counts are multiples of it."""

    def __init__(self, depth: int, memory: float) -> None:
        """memory: number of rounds that count, recent ones most."""
        self.tried, self.accepted = [0.0] * depth, [0.0] * depth
        self.rows = self.rows_with = self.rounds = self.rounds_with = 0.0
        self.unit, self._growth = 1.0, 1 / (1 - 1 / memory)

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """See `Acceptance.add`."""
        self._add_round(len(accepted), without)
        unit, tried = self.unit, self.tried
        for count in accepted:
            for depth in range(count):
                tried[depth] += unit
                self.accepted[depth] += unit
            if count < limit:
                tried[count] += unit
        self._rescale()

    def _add_round(self, rows_with: int, without: int) -> None:
        self.unit *= self._growth
        self.rows += (rows_with + without) * self.unit
        self.rounds += self.unit
        if rows_with:
            self.rows_with += rows_with * self.unit
            self.rounds_with += self.unit

    def _rescale(self) -> None:
        if self.unit > LARGEST_UNIT:
            self.scale(1 / self.unit)
            self.unit = 1.0

    def scale(self, factor: float) -> None:
        self.tried = [factor * count for count in self.tried]
        self.accepted = [factor * count for count in self.accepted]
        self.rows *= factor
        self.rows_with *= factor
        self.rounds *= factor
        self.rounds_with *= factor


def count_rounds(rounds: Iterable[tuple[int, int]], depth: int, *, is_chain: bool) -> MeasuredAcceptance:
    """Count rounds of single sequences, all with equal weight.

    rounds: for each round its new tokens, the bonus token included, and its drafts, for a tree all nodes. depth: the
    maximum number of drafts that a round accepts.
    """
    counts = AcceptanceCounts(depth, math.inf)
    for tokens, drafts in rounds:
        counts.add([tokens - 1] if drafts else [], min(drafts, depth) if is_chain else depth, int(not drafts))
    tried, accepted = (tuple(map(int, each)) for each in (counts.tried, counts.accepted))
    return MeasuredAcceptance(int(counts.rounds), int(counts.rounds_with), tried, accepted)


class Acceptance:
    """Acceptance rate at each depth, after accepted predecessors: of the current text, and of all texts while little is
    known of the current one.

    A depth that was seldom reached is assumed to be like the one before it.
    """

    def __init__(self, depth: int) -> None:
        self._here, self._everywhere = AcceptanceCounts(depth, MEMORY), AcceptanceCounts(depth, LONG_MEMORY)
        self._uncounted: list[tuple[Sequence[int], int, int]] = []
        """Rounds that are counted when an estimate is asked for: together they take a third of the time."""

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """Add a round. accepted: accepted drafts of every sequence with drafts; limit: maximum that a sequence could
        accept; without: number of sequences without drafts."""
        self._uncounted.append((accepted, limit, without))

    def _count(self) -> tuple[AcceptanceCounts, AcceptanceCounts, float]:
        """Return the counts of the current text and of all texts, and the factor that takes the latter to the former: a
        round's weight over its unit. The constants of estimates are multiples of the first unit as well."""
        for accepted, limit, without in self._uncounted:
            self._here.add(accepted, limit, without)
            self._everywhere.add(accepted, limit, without)
        self._uncounted.clear()
        here, everywhere = self._here, self._everywhere
        if not everywhere.rounds:
            return here, everywhere, 0.0
        weight = PRIOR_WEIGHT / (1 + here.rounds / here.unit / PRIOR_WEIGHT) / (everywhere.rounds / everywhere.unit)
        return here, everywhere, min(1.0, weight) * here.unit / everywhere.unit

    def expect(self, measured: MeasuredAcceptance) -> None:
        """Set the prior from rounds of other texts; they count as at most LONG_MEMORY rounds."""
        factor, (_, counts, _) = min(1.0, LONG_MEMORY / measured.rounds), self._count()
        counts.tried = [factor * count for count in measured.tried]
        counts.accepted = [factor * count for count in measured.accepted]
        counts.rows = counts.rounds = factor * measured.rounds
        counts.rows_with = counts.rounds_with = factor * measured.drafted
        counts.unit = 1.0

    def limit_weight(self, rounds: float) -> None:
        """Let the evidence of the current text count for at most `rounds` rounds."""
        here, _, _ = self._count()
        if here.rounds > rounds * here.unit:
            here.scale(rounds * here.unit / here.rounds)

    def halve(self) -> None:
        """Let the evidence of the current text count half: the text has gone on without drafts."""
        here, _, _ = self._count()
        here.scale(0.5)

    def tokens(self) -> list[float]:
        """Return the expected new tokens of a sequence with drafts, if at most 0, 1, .. of them can be accepted."""
        here, everywhere, weight = self._count()
        return self._expected(
            here.unit,
            [a + weight * b for a, b in zip(here.accepted, everywhere.accepted, strict=True)],
            [a + weight * b for a, b in zip(here.tried, everywhere.tried, strict=True)],
        )

    def usual_tokens(self) -> list[float]:
        """Return what `tokens` returns for a text of which nothing is known."""
        _, everywhere, _ = self._count()
        return self._expected(everywhere.unit, everywhere.accepted, everywhere.tried)

    @property
    def rows(self) -> float:
        """Share of sequences that have drafts."""
        here, everywhere, weight = self._count()
        with_drafts = here.rows_with + weight * everywhere.rows_with + here.unit
        return with_drafts / (here.rows + weight * everywhere.rows + here.unit)

    @property
    def rounds(self) -> float:
        """Share of rounds in which some sequence has drafts."""
        here, everywhere, weight = self._count()
        with_drafts = here.rounds_with + weight * everywhere.rounds_with + here.unit
        return with_drafts / (here.rounds + weight * everywhere.rounds + here.unit)

    def _expected(self, unit: float, accepted: Sequence[float], tried: Sequence[float]) -> list[float]:
        """Return the expected new tokens with at most 0, 1, .. accepted drafts. unit: the weight of a round."""
        chance, reached, found = PRIOR_ACCEPTANCE, 1.0, [1.0]
        for kept, seen in zip(accepted, tried, strict=True):
            chance = (kept + chance * unit) / (seen + unit)
            reached *= chance
            found.append(found[-1] + reached)
        return found
