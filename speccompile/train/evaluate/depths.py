"""Acceptance by depth on held-out samples, as counts, which are divided after all are added."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.train.evaluate.drafted import draft, inference_mode, read, windows
from speccompile.train.teacher import Teacher

Texts = tuple[Tensor, Tensor, Tensor]
"""(tokens int64 [B, T], attention mask bool [B, T], loss mask bool [B, T]), as in `TeacherBatch`."""

_SHORTEST = 3
"""Minimum length of a sample with an anchor and a draft after it."""


@dataclass(frozen=True)
class DepthCounts:
    """Counts for every depth k, from 1 on. Counts of batches and processes are added.

    places: number of anchors whose next k tokens are all in the loss mask. before: those of them at which the drafts 1
    to k - 1 are the target's best tokens, given the text before each. right: those at which draft k is, too. accepted:
    sum over all places of the probability that the target accepts a sampled draft k.
    """

    places: tuple[int, ...]
    before: tuple[int, ...]
    right: tuple[int, ...]
    accepted: tuple[float, ...]

    @classmethod
    def none(cls, depth: int) -> "DepthCounts":
        return cls((0,) * depth, (0,) * depth, (0,) * depth, (0.0,) * depth)

    def __add__(self, other: "DepthCounts") -> "DepthCounts":
        return DepthCounts(
            _sums(self.places, other.places),
            _sums(self.before, other.before),
            _sums(self.right, other.right),
            tuple(a + b for a, b in zip(self.accepted, other.accepted, strict=True)),
        )

    @property
    def full(self) -> list[float | None]:
        """Share of places at which all drafts up to a depth are right; None without a place."""
        return _shares(self.right, self.places)

    @property
    def cond(self) -> list[float | None]:
        """Share of places with all earlier drafts right at which this draft is, too; None without such a place."""
        return _shares(self.right, self.before)

    @property
    def accepted_at_depth(self) -> list[float | None]:
        """Return the mean probability that a sampled draft is accepted; None without a place."""
        return _shares(self.accepted, self.places)

    @property
    def expected(self) -> float:
        """Expected acceptance length of a greedy round from a random position, bonus token included: 1 + sum over k of
        the product of `cond` up to k. Real rounds do not begin at random positions: see `simulate_rounds`."""
        total, product = 1.0, 1.0
        for share in self.cond:
            product *= share or 0.0
            total += product
        return total


def depths(
    student: TrainableDrafter,
    teacher: Teacher,
    batches: Iterable[Texts],
    depth: int,
    watch: Callable[[TeacherBatch], None] = lambda seen: None,
) -> DepthCounts:
    """Count the correct drafts at every anchor of held-out samples, with teacher forcing.

    watch: called with the target's outputs of each batch, for further figures such as the loss.
    """
    counts = DepthCounts.none(depth)
    with inference_mode(student):
        for tokens, real, learnt in batches:
            if tokens.shape[1] >= _SHORTEST:
                seen = read(teacher, student, tokens, real, learnt)
                counts += _count(student, seen, depth)
                watch(seen)
    return counts


def _count(student: TrainableDrafter, seen: TeacherBatch, depth: int) -> DepthCounts:
    drafted = draft(student, seen, depth)
    # For the anchors 1 .. T - 2: loss mask of the tokens after them, and the target's best tokens there.
    places = windows(seen.attention_mask & seen.loss_mask, depth)[:, 2:].long().cumprod(2).bool()
    right = places & (drafted.best == windows(seen.logits.argmax(-1), depth)[:, 1:-1])
    run = right.long().cumprod(2).bool()
    before = torch.cat([places[..., :1], places[..., 1:] & run[..., :-1]], 2)
    accepted = torch.where(places, drafted.accepted, 0.0).sum((0, 1), dtype=torch.float64)
    return DepthCounts(_total(places), _total(before), _total(run), tuple(accepted.tolist()))


def _total(found: Tensor) -> tuple[int, ...]:
    return tuple(found.sum((0, 1)).tolist())


def _sums(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _shares(parts: Iterable[float], wholes: Iterable[int]) -> list[float | None]:
    return [part / whole if whole else None for part, whole in zip(parts, wholes, strict=True)]
