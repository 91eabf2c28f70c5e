"""Drafts at all anchors of samples: the best tokens, and the probability that the target accepts a sampled draft."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.train.teacher import Teacher

BLOCKS = 64
"""Anchors per forward pass, for drafters that need a separate block per anchor."""


@dataclass(frozen=True)
class AnchorDrafts:
    """Drafts 0 .. D - 1 after the anchors `first`, `first` + 1, .. T - 2 of samples of T tokens.

    best int64 [B, A, D]: tokens of the target's vocabulary. accepted float32 [B, A, D]: probability that the target
    accepts a token sampled from the drafter, sum over v of min(p(v), q(v)) (Leviathan et al. 2023, section 3.3), with p
    over the target's whole vocabulary. Drafts past the end of a sample have no meaning.
    """

    first: int
    best: Tensor
    accepted: Tensor


@contextmanager
def inference_mode(student: TrainableDrafter) -> Iterator[None]:
    """Put the drafter into the state in which it is compiled: no dropout, no gradients."""
    training = student.training
    student.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        student.train(training)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the module's first parameter, where its inputs belong."""
    return next(module.parameters()).device


def read(teacher: Teacher, student: TrainableDrafter, tokens: Tensor, real: Tensor, learnt: Tensor) -> TeacherBatch:
    """Return the target's outputs for samples, on the drafter's device. Arguments: as for `Teacher.forward`, on any
    device."""
    place, where = device_of(teacher.model), device_of(student)
    seen = teacher.forward(tokens.to(place), real.to(place), learnt.to(place))
    return type(seen)(*(getattr(seen, field.name).to(where) for field in fields(seen)))


def draft(student: TrainableDrafter, seen: TeacherBatch, depth: int, first: int = 1) -> AnchorDrafts:
    """Return the drafts at all anchors from `first` on. Samples have at least `first` + 2 tokens."""
    first = 1 if student.every else first
    anchors = torch.arange(first, seen.tokens.shape[1] - 1, device=seen.tokens.device)
    groups = [anchors] if student.every else anchors.split(BLOCKS)
    parts = [_draft(student, seen, group, 1 if student.even else depth) for group in groups]
    best, accepted = (torch.cat(each, 1) for each in zip(*parts, strict=True))
    if student.even:  # the draft of a position is equal for every earlier anchor
        best, accepted = (windows(each[..., 0], depth) for each in (best, accepted))
    return AnchorDrafts(first, best, accepted)


def windows(values: Tensor, depth: int) -> Tensor:
    """Return [B, N, D] of [B, N]: each value and the D - 1 values after it, zeros past the end."""
    return functional.pad(values, (0, depth - 1)).unfold(1, depth, 1)


def _draft(student: TrainableDrafter, seen: TeacherBatch, anchors: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Return best and accepted, as in `AnchorDrafts`, at these anchors [A]."""
    batch, length = seen.tokens.shape
    kept = None if student.vocabulary is None else student.vocabulary.to(seen.tokens.device)
    best, accepted = [], []
    for step, logits in enumerate(student(seen, anchors.expand(batch, -1), depth)):
        found = logits.argmax(-1)
        best.append(found if kept is None else kept[found])
        target = seen.logits[:, (anchors + step).clamp(max=length - 1)].softmax(-1)
        target = target if kept is None else target[..., kept]
        accepted.append(torch.minimum(target, logits.float().softmax(-1)).sum(-1))
    return torch.stack(best, 2), torch.stack(accepted, 2)


def draft_logits(student: TrainableDrafter, seen: TeacherBatch, anchor: int, depth: int) -> list[Tensor]:
    """Return the logits of the drafts after one anchor of a single sample: `depth` tensors float32 [Vd]."""
    anchors = torch.tensor([[anchor]], device=seen.tokens.device)
    return [logits[0, 0].float() for logits in student(seen, anchors, depth)]
