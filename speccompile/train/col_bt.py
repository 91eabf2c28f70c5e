"""Collective boost-tuning (SpecInfer, section 3.1 of Miao et al. 2024): several drafters that cover each other.

The first learns from all prompts; those whose answers it gives exactly as the target does are marked, and the next
learns from the rest. Drafted together, they are right more often than one.
"""

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.errors import RecipeError
from speccompile.train.data.corpus import Dataset

WHOLE = 1.0
"""The published rule: a prompt is marked where all tokens of its answer are the drafter's own."""

BATCH = 16  # texts that are read at a time


@torch.no_grad()
def solved_by_drafter(
    learner: TrainableDrafter, batches: Iterable[tuple[Tensor, Tensor, Tensor]], threshold: float = WHOLE
) -> Iterator[Tensor]:
    """Which prompts of each batch a drafter answers as the target does: bool [B].

    learner: an even one, which reads tokens alone. batches: tokens int64 [B, T]; real, learnt bool [B, T], learnt being
    the target's greedy answers. threshold: share of an answer, from above 0 to 1, that has to be the drafter's best
    token behind the target's own tokens: where it is the whole answer, that is what the drafter says by itself. The
    first token behind the first of a text is left out, as no draft stands there.
    """
    assert learner.even, "the plan refuses drafters that read the target's features"
    was_training = learner.training
    learner.eval()
    for tokens, real, learnt in batches:
        anchors = torch.arange(1, tokens.shape[1] - 1, device=tokens.device).expand(len(tokens), -1)
        nothing = torch.zeros((*tokens.shape, 0), device=tokens.device)
        (logits,) = learner(TeacherBatch(tokens, real, learnt, nothing, nothing), anchors, 1)
        best = logits.argmax(-1)
        wanted = (real & learnt)[:, 2:]
        same = (best if learner.vocabulary is None else learner.vocabulary.to(best.device)[best]) == tokens[:, 2:]
        count = wanted.sum(1)
        yield (count > 0) & ((same & wanted).sum(1) >= threshold * count)
    learner.train(was_training)


def unsolved_texts(corpus: Dataset, learner: TrainableDrafter, drafter: str, threshold: float = WHOLE) -> Dataset:
    """The texts that are left for the next drafter: all that `reproduced` does not mark.

    learner: the first one, where it computes; drafter: its folder, for messages. Raises RecipeError where nothing is
    left.
    """
    device = next(learner.parameters()).device
    marks = torch.cat(list(solved_by_drafter(learner, _batches(corpus, device), threshold))).cpu().numpy()
    left = np.flatnonzero(~marks)
    if not len(left):
        raise RecipeError(
            f"train.loss.drop: {drafter} gives the target's answer to all {len(marks)} prompts, expected some that are "
            "left to learn from",
            hint="give other prompts, or leave train.loss.drop out",
        )
    return Dataset(corpus.texts, corpus.rows[left], f"{corpus.key}-{zlib.crc32(left.tobytes()):08x}")


def _batches(corpus: Dataset, device: torch.device) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for samples in np.array_split(np.arange(len(corpus)), -(-len(corpus) // BATCH)):
        batch = corpus.gather(samples)
        yield batch.tokens.to(device), batch.attention_mask.to(device), batch.loss_mask.to(device)
