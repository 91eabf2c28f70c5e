"""Acceptance of a tree's drafts by the width of the window, which holds the first nodes of the tree.

Dynamic trees are ordered best first, with every node after its parent, so that the first nodes of a window are a tree
as well: the best one of that size. A round with a window shows what all narrower ones would have accepted.
"""

from collections.abc import Sequence

from speccompile.bundle.acceptance import MeasuredAcceptance
from speccompile.runtime.rounds.acceptance_rate import (
    LONG_MEMORY,
    MEMORY,
    PRIOR_ACCEPTANCE,
    Acceptance,
    AcceptanceCounts,
)

LEAST_NODES = 2
"""Minimum number of drafts in a window of a tree."""

NODES_GAIN = 1.15
"""Factor by which twice the nodes raise the number of accepted drafts, until rounds have shown it."""


def tree_widths(full: int) -> list[int]:
    """Return the widths of windows of a tree, ascending: of all of its drafts, of half of them, of a quarter, .."""
    drafts, found = full - 1, [full]
    while (drafts := drafts // 2) >= LEAST_NODES:
        found.append(1 + drafts)
    return found[::-1]


def offered_widths(tree: str, full: int, depth: int, *, is_cpu: bool) -> dict[int, int]:
    """Return what `SpeedupModel` takes: the widths of windows that may be verified, and what each accepts. On a GPU
    narrow windows cost as much as wide ones."""
    if is_cpu and tree == "chain":
        return {width: width - 1 for width in range(1, full + 1)}
    if is_cpu and tree == "dynamic":
        return {width: place for place, width in enumerate([1, *tree_widths(full)])}
    return {1: 0, full: depth}


def accepted_by_width(nodes: Sequence[int], widths: Sequence[int]) -> list[int]:
    """Return how many of the accepted nodes, numbers in a window, windows of these widths would have accepted."""
    return [sum(node < width for node in nodes) for width in widths]


class TreeCounts(AcceptanceCounts):
    """Accepted drafts of windows by width: `accepted` in windows of a width, `tried` in those of the width before it in
    the same rounds; before the first width, sequences."""

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """See `TreeAcceptance.add`."""
        self._add_round(len(accepted) // limit if limit else 0, without)
        for start in range(0, len(accepted), limit or 1):
            before = 1
            for place, count in enumerate(accepted[start : start + limit]):
                self.tried[place] += before * self.unit
                self.accepted[place] += count * self.unit
                before = count
        self._rescale()


class TreeAcceptance(Acceptance):
    """Expected tokens of windows of a tree by width: of the current text, and of all texts while little is known of it.

    The accepted drafts of the narrowest window are counted, and for each wider one the factor to the window before it.
    """

    def __init__(self, widths: int, nodes: int, depth: int) -> None:
        """widths: number of widths; nodes: drafts in the narrowest window; depth: of the tree."""
        super().__init__(widths)
        self._here, self._everywhere = TreeCounts(widths, MEMORY), TreeCounts(widths, LONG_MEMORY)
        few, reached = 0.0, 1.0
        for _ in range(min(nodes, depth)):
            reached *= PRIOR_ACCEPTANCE
            few += reached
        self._prior = [few, *[NODES_GAIN] * (widths - 1)]

    def add(self, accepted: Sequence[int], limit: int, without: int) -> None:
        """Add a round. limit: number of widths up to the window's; accepted: for every sequence with drafts as many
        numbers, of drafts that windows of these widths would have accepted; without: number of sequences without
        drafts."""
        super().add(accepted, limit, without)

    def expect(self, measured: MeasuredAcceptance) -> None:
        """Set the prior from rounds of other texts with all nodes."""
        super().expect(measured)
        counts = self._everywhere
        narrowest = sum(measured.accepted) / max(1, measured.drafted)
        for factor in self._prior[1:]:
            narrowest /= factor
        counts.tried, counts.accepted = [0.0] * len(self._prior), [0.0] * len(self._prior)
        counts.tried[0], counts.accepted[0] = counts.rows_with, counts.rows_with * narrowest

    def _expected(self, unit: float, accepted: Sequence[float], tried: Sequence[float]) -> list[float]:
        reached, found = 1.0, [1.0]
        for prior, kept, seen in zip(self._prior, accepted, tried, strict=True):
            reached *= (kept + prior * unit) / (seen + unit)
            found.append(1 + reached)
        return found
