"""What a drafter says behind the places of texts: its best tokens, and how much of them the target would accept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.train.teacher import Teacher

BLOCKS = 64
"""Anchors that are asked for at once of drafters whose anchors cost a block each."""


@dataclass(frozen=True)
class AnchorDrafts:
    """Drafts 0 .. D - 1 behind the anchors `first`, `first` + 1, .. T - 2 of texts of T tokens.

    best int64 [B, A, D]: tokens of the target's vocabulary. accepted float32 [B, A, D]: with which probability the
    target takes a token that is drawn from the drafter, sum over v of min(p(v), q(v)) (Leviathan et al. 2023,
    section 3.3), p over the target's whole vocabulary. Drafts behind the end of a text mean nothing.
    """

    first: int
    best: Tensor
    accepted: Tensor


@contextmanager
def inference_mode(learner: TrainableDrafter) -> Iterator[None]:
    """Inside, it is as it will be compiled: nothing is dropped out, and no gradient is kept."""
    training = learner.training
    learner.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        learner.train(training)


def device_of(module: nn.Module) -> torch.device:
    """Where its first parameter lies, which is where its inputs belong."""
    return next(module.parameters()).device


def read(teacher: Teacher, learner: TrainableDrafter, tokens: Tensor, real: Tensor, learnt: Tensor) -> TeacherBatch:
    """What the target makes of texts, where the learner is. Arguments as of `Teacher.read`, on any device."""
    place, where = device_of(teacher.model), device_of(learner)
    seen = teacher.forward(tokens.to(place), real.to(place), learnt.to(place))
    return TeacherBatch(*(getattr(seen, field.name).to(where) for field in fields(TeacherBatch)))


def draft(learner: TrainableDrafter, seen: TeacherBatch, depth: int, first: int = 1) -> AnchorDrafts:
    """What a learner says at all anchors from `first` on. The texts are at least `first` + 2 tokens long."""
    first = 1 if learner.every else first
    anchors = torch.arange(first, seen.tokens.shape[1] - 1, device=seen.tokens.device)
    groups = [anchors] if learner.every else anchors.split(BLOCKS)
    parts = [_draft(learner, seen, group, 1 if learner.even else depth) for group in groups]
    best, accepted = (torch.cat(each, 1) for each in zip(*parts, strict=True))
    if learner.even:  # what it says of a place is the same for every anchor before it
        best, accepted = (windows(each[..., 0], depth) for each in (best, accepted))
    return AnchorDrafts(first, best, accepted)


def windows(values: Tensor, depth: int) -> Tensor:
    """[B, N] -> [B, N, D]: each value and those behind it, zeros behind the end."""
    return functional.pad(values, (0, depth - 1)).unfold(1, depth, 1)


def _draft(learner: TrainableDrafter, seen: TeacherBatch, anchors: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """best and accepted, as in `Drafted`, at some anchors [A]."""
    batch, length = seen.tokens.shape
    kept = None if learner.vocabulary is None else learner.vocabulary.to(seen.tokens.device)
    best, accepted = [], []
    for step, logits in enumerate(learner(seen, anchors.expand(batch, -1), depth)):
        found = logits.argmax(-1)
        best.append(found if kept is None else kept[found])
        target = seen.logits[:, (anchors + step).clamp(max=length - 1)].softmax(-1)
        target = target if kept is None else target[..., kept]
        accepted.append(torch.minimum(target, logits.float().softmax(-1)).sum(-1))
    return torch.stack(best, 2), torch.stack(accepted, 2)


def draft_logits(learner: TrainableDrafter, seen: TeacherBatch, anchor: int, depth: int) -> list[Tensor]:
    """What it says of each draft behind one anchor of a single text: so many times float32 [Vd]."""
    anchors = torch.tensor([[anchor]], device=seen.tokens.device)
    return [logits[0, 0].float() for logits in learner(seen, anchors, depth)]
