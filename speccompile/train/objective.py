"""Loss of a part of a step: weighted drafts after anchors, by depth.

The loop adds the parts and divides once, so that a step does not depend on its split. Hence nothing here is a mean over
a part, and random choices for a sample depend on the sample, not on its neighbours.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter, has_label
from speccompile.plan.training_plan import LossPlan
from speccompile.train.chunked_loss import Summed, chunk_rows, chunked_loss
from speccompile.train.losses import DraftLoss, divergence, draft_token_index, token_log_probs

DPACE_FLOOR = 0.5  # alpha of D-PACE: minimum factor of a draft's weight relative to the draft before it


@dataclass(frozen=True)
class WeightedLoss:
    """Loss of a part. total: sum of the weighted losses, a scalar with gradient; weight: sum of the weights, without
    gradient. shown: metric -> (sum, count), scalars that add up over parts and processes: `loss/D`, `accepted/D`
    (probability that sampling accepts the draft) and `right/D` (whether the draft is the target's best token), of the
    drafts at depth D, from 1 on."""

    total: Tensor
    weight: Tensor
    shown: Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class _Drafts:
    """Labels of drafts, [B, A, D]. places int64: positions, clamped to the text; tokens int64: the text's tokens there;
    counted bool: whether the position is in the loss mask."""

    places: Tensor
    tokens: Tensor
    counted: Tensor


class _AtDepth(NamedTuple):
    """Loss of the drafts at one depth, see `WeightedLoss`. accepted: float32 [B, A], 0 for drafts that do not count."""

    total: Tensor
    weight: Tensor
    accepted: Tensor
    shown: dict[str, tuple[Tensor, Tensor]]


class Objective:
    """Loss function of a plan."""

    def __init__(self, plan: LossPlan, depth: int) -> None:
        """depth: number of consecutive drafts. A draft that does not depend on its depth is trained at depth 1 only."""
        self.plan, self.depth = plan, depth

    def __call__(self, student: TrainableDrafter, seen: TeacherBatch, seed: int, step: int) -> WeightedLoss:
        """Return the loss of a part of step `step`. Unless all positions are anchors, seed and step select them."""
        whole = student.every or student.even
        anchors, chosen = _all_anchors(seen) if whole else drawn_anchors(seen, self.plan.anchors, seed, step)
        depth = 1 if student.even else self.depth
        drafted, drafts = student(seen, anchors, depth), _drafts(seen, anchors, chosen, depth)
        vocabulary = None if student.vocabulary is None else student.vocabulary.to(seen.tokens.device)
        places = None if vocabulary is None else draft_token_index(vocabulary, seen.logits.shape[-1])
        weights = self._weights(drafted, drafts, places)
        total = weight = seen.logits.new_zeros(())
        shown: dict[str, tuple[Tensor, Tensor]] = {}
        accepted = []
        for at, logits in enumerate(drafted):
            found = self._at_depth(at, logits, seen, drafts, weights, vocabulary)
            total, weight = total + found.total, weight + found.weight
            shown |= found.shown
            accepted.append(found.accepted)
        more = student.own_loss(seen, anchors, drafted, accepted)
        if more is not None:
            total = total + (torch.where(drafts.counted, more, 0.0) * weights).sum()
        return WeightedLoss(total, weight, shown)

    def _at_depth(
        self, at: int, logits: Tensor, seen: TeacherBatch, drafts: _Drafts, weights: Tensor, vocabulary: Tensor | None
    ) -> _AtDepth:
        counted, plan = drafts.counted[..., at], self.plan
        rows, share = counted.flatten().nonzero()[:, 0], weights[..., at][counted]
        tokens, texts = drafts.tokens[..., at][counted], counted.nonzero()[:, 0]
        before = texts * seen.tokens.shape[1] + drafts.places[..., at][counted] - 1
        target, best = seen.logits.flatten(0, 1), torch.empty_like(before)

        def loss_of(own: Tensor, piece: slice) -> DraftLoss:
            wanted = target[before[piece]]
            best[piece] = wanted.max(-1).indices
            return divergence(
                plan.kind, own, wanted, tokens[piece], beta=plan.beta, hard=plan.hard, vocabulary=vocabulary
            )

        found = chunked_loss(logits.flatten(0, 1), rows, share, loss_of)
        right = (found.best if vocabulary is None else vocabulary[found.best]) == best
        accepted = torch.zeros_like(weights[..., at]).masked_scatter(counted, found.accepted)
        return _AtDepth(found.total, (found.counted * share).sum(), accepted, _shown(at + 1, found, right))

    @torch.no_grad()
    def _weights(self, drafted: list[Tensor], drafts: _Drafts, places: Tensor | None) -> Tensor:
        """Return the weights, float32 [B, A, D], 0 for drafts that do not count. places: see `draft_token_index`."""
        counted = drafts.counted.float()
        if self.plan.depth_weights == "decay":
            return counted * self.plan.decay ** torch.arange(len(drafted), device=counted.device)
        assert self.plan.depth_weights == "dpace", "the plan refuses other weights"
        return dpace(_chances(drafted, drafts.tokens, places), drafts.counted)


def dpace(chances: Tensor, counted: Tensor) -> Tensor:
    """Return D-PACE's weights of drafts by depth. chances [B, A, D]: the drafter's probability of the text's token.

    w_k = sum over j >= k of the product over i <= j of s_i, with s_i = (1 - alpha) q_i + alpha: the part of the
    expected accepted length that depends on draft k. Drafts that do not count (`counted` bool [B, A, D]) add nothing.
    """
    runs = (DPACE_FLOOR + (1 - DPACE_FLOOR) * chances).cumprod(-1) * counted
    return runs.flip(-1).cumsum(-1).flip(-1) * counted


def drawn_anchors(seen: TeacherBatch, count: int, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Select `count` distinct anchors of each sample, each followed by a token in the loss mask, ascending.

    Return int64 [B, A] and bool [B, A]. A is below `count` if no sample has that many. A sample with fewer anchors
    repeats its last one; the mask marks those that count. The choice depends on seed, step and the sample's tokens, not
    on other samples of the part.
    """
    found = []
    for tokens, real, learnt in zip(
        *(each.cpu().numpy() for each in (seen.tokens, seen.attention_mask, seen.loss_mask)), strict=True
    ):
        places = 1 + np.flatnonzero((learnt & real)[2:])
        random = np.random.default_rng((seed, step, zlib.crc32(tokens[real].tobytes())))
        found.append(np.sort(random.choice(places, min(count, len(places)), replace=False)))
    widest = max(1, *map(len, found))
    filled = [np.pad(each, (0, widest - len(each)), mode="edge") if len(each) else np.ones(widest) for each in found]
    anchors = torch.from_numpy(np.stack(filled).astype(np.int64)).to(seen.tokens.device)
    counts = torch.tensor([len(each) for each in found], device=anchors.device)
    return anchors, torch.arange(widest, device=anchors.device) < counts[:, None]


def _all_anchors(seen: TeacherBatch) -> tuple[Tensor, Tensor]:
    """Return every position from 1 on that has a next token. The loss mask decides later which drafts count."""
    batch, length = seen.tokens.shape
    anchors = torch.arange(1, max(2, length - 1), device=seen.tokens.device).expand(batch, -1)
    return anchors, torch.ones_like(anchors, dtype=torch.bool)


def _drafts(seen: TeacherBatch, anchors: Tensor, chosen: Tensor, depth: int) -> _Drafts:
    beyond = anchors[..., None] + torch.arange(1, depth + 1, device=anchors.device)
    places = beyond.clamp(max=seen.tokens.shape[1] - 1)
    tokens = seen.tokens.gather(1, places.flatten(1)).view_as(places)
    return _Drafts(places, tokens, has_label(seen, beyond) & chosen[..., None])


def _chances(drafted: list[Tensor], tokens: Tensor, places: Tensor | None) -> Tensor:
    """Return q [B, A, D] of the text's tokens [B, A, D]; 0 for tokens outside the drafter's vocabulary."""
    found = []
    for at, logits in enumerate(drafted):
        wanted = tokens[..., at]
        sums = [each.float().logsumexp(-1) for each in logits.flatten(0, 1).split(chunk_rows(logits))]
        chance = (token_log_probs(logits, wanted, places).float() - torch.cat(sums).view_as(wanted)).exp()
        found.append(chance if places is None else chance.masked_fill(places[wanted] < 0, 0.0))
    return torch.stack(found, -1)


def _shown(depth: int, found: Summed, right: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    drafts = torch.tensor(len(right), device=right.device)
    return {
        f"loss/{depth}": (found.loss.sum(), found.counted.sum()),
        f"accepted/{depth}": (found.accepted.sum(), drafts),
        f"right/{depth}": (right.sum(), drafts),
    }
