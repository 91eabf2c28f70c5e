"""Acceptance rate by depth, over the rounds that drafted to that depth."""

from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.bundle.manifest import Manifest
from speccompile.runtime import Generation


@dataclass(frozen=True)
class Depth:
    """Acceptance of the draft token at one depth, counted from 1. Rounds with shorter drafts do not count."""

    depth: int
    rounds: int
    """Number of rounds that drafted to this depth."""
    accepted: float | None
    """Share of these rounds that accepted the draft token; None without such a round."""
    accepted_after_previous: float | None
    """Share that accepted it, of the rounds that accepted all earlier drafts; None without such a round."""


def acceptance_by_depth(generations: Sequence[Generation], manifest: Manifest) -> tuple[Depth, ...]:
    """Return the acceptance at every depth that this bundle can draft; nothing if no round ran."""
    rounds = [
        (_deepest(drafts, manifest), length - 1)
        for one in generations
        for drafts, length in zip(one.draft_lengths, one.path_lengths, strict=True)
    ]
    return tuple(_depth(depth, rounds) for depth in range(1, manifest.depth + 1)) if rounds else ()


def _deepest(drafts: int, manifest: Manifest) -> int:
    """Return the greatest depth that a round with this number of drafts can accept.

    The nodes of a tree that is not full are unknown: it counts as a chain."""
    return min(drafts, manifest.depth)


def _depth(depth: int, rounds: Sequence[tuple[int, int]]) -> Depth:
    """Return the acceptance at one depth. rounds: (draft depth, number of accepted drafts) of every round."""
    accepted = [count for drafted, count in rounds if drafted >= depth]
    here, before = (sum(count >= wanted for count in accepted) for wanted in (depth, depth - 1))
    return Depth(depth, len(accepted), here / len(accepted) if accepted else None, here / before if before else None)
