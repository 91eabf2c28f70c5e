"""Acceptance by depth, on text that was not learnt: counts, which are divided when all of them are there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.train.evaluate.drafted import draft, inference_mode, read, windows
from speccompile.train.teacher import Teacher

Texts = tuple[Tensor, Tensor, Tensor]
"""tokens int64 [B, T]; real, learnt bool [B, T], as in `Seen`."""

_SHORTEST = 3
"""Tokens of a text that has an anchor and a draft behind it."""


@dataclass(frozen=True)
class DepthCounts:
    """Of every depth k, from 1 on. Counts of parts of the texts, and of processes, are added.

    places: anchors behind which the tokens 1 .. k are all learnt. before: those of them at which the drafts 1 .. k - 1
    are the target's best tokens, given the text before each. right: those at which draft k is, too. accepted: the sum
    over all places of the probability with which the target takes draft k where it is drawn.
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
        """Share of places at which all drafts up to a depth are right; None where there is no place."""
        return _shares(self.right, self.places)

    @property
    def cond(self) -> list[float | None]:
        """Share of places at which the draft is right, where all before it are; None where there is no such place."""
        return _shares(self.right, self.before)

    @property
    def accepted_at_depth(self) -> list[float | None]:
        """Mean of the probability with which a drawn draft is taken; None where there is no place."""
        return _shares(self.accepted, self.places)

    @property
    def expected(self) -> float:
        """Tokens of a greedy round that begins anywhere, the bonus token included: 1 + sum over k of the product of
        `cond` up to k. Rounds do not begin anywhere, which is what `simulate` is for."""
        total, product = 1.0, 1.0
        for share in self.cond:
            product *= share or 0.0
            total += product
        return total


def depths(
    learner: TrainableDrafter,
    teacher: Teacher,
    batches: Iterable[Texts],
    depth: int,
    watch: Callable[[TeacherBatch], None] = lambda seen: None,
) -> DepthCounts:
    """What a learner guesses of held-out texts, whose tokens are given to it, at every anchor.

    watch: shown what the target makes of each batch, for whatever else is to be known of it, as the loss.
    """
    counts = DepthCounts.none(depth)
    with inference_mode(learner):
        for tokens, real, learnt in batches:
            if tokens.shape[1] >= _SHORTEST:
                seen = read(teacher, learner, tokens, real, learnt)
                counts += _count(learner, seen, depth)
                watch(seen)
    return counts


def _count(learner: TrainableDrafter, seen: TeacherBatch, depth: int) -> DepthCounts:
    drafted = draft(learner, seen, depth)
    # of the anchors 1 .. T - 2: the tokens behind them, and what the target says at each and behind it
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
