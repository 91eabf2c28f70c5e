"""How often the draft at a depth was accepted, among the rounds that drafted so deep."""

from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.bundle.manifest import Manifest
from speccompile.runtime import Generation


@dataclass(frozen=True)
class Depth:
    """How often the draft at a depth, counted from 1, was accepted. A round that drafts less deep does not count."""

    depth: int
    rounds: int
    """That drafted so deep."""
    accepted: float | None
    """Their share that accepted it; None when there was none."""
    accepted_after_previous: float | None
    """Share of those of them in which all drafts before it were; None when there was no such round."""


def acceptance_by_depth(generations: Sequence[Generation], manifest: Manifest) -> tuple[Depth, ...]:
    """Every depth that a round of this bundle can accept; none where no round was run."""
    rounds = [
        (_deepest(drafts, manifest), length - 1)
        for one in generations
        for drafts, length in zip(one.draft_lengths, one.path_lengths, strict=True)
    ]
    return tuple(_depth(depth, rounds) for depth in range(1, manifest.depth + 1)) if rounds else ()


def _deepest(drafts: int, manifest: Manifest) -> int:
    """The depth that a round with so many drafts can accept. Of a tree that has room left, which nodes there are is not
    known: it counts as deep as so many can be."""
    return min(drafts, manifest.depth)


def _depth(depth: int, rounds: Sequence[tuple[int, int]]) -> Depth:
    """rounds: how deep each drafted, and how many drafts it accepted."""
    accepted = [count for drafted, count in rounds if drafted >= depth]
    here, before = (sum(count >= wanted for count in accepted) for wanted in (depth, depth - 1))
    return Depth(depth, len(accepted), here / len(accepted) if accepted else None, here / before if before else None)
