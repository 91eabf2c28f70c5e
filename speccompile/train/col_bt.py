"""Collective boost-tuning (SpecInfer, section 3.1 of Miao et al. 2024): several drafters that complement each other.

The first drafter trains on all prompts. The next one trains on the prompts whose responses the first does not reproduce
exactly. Drafting together, they are right more often than one.
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
"""Published threshold: a prompt is solved if the drafter predicts every token of its response."""

BATCH = 16  # samples per forward pass


@torch.no_grad()
def solved_by_drafter(
    student: TrainableDrafter, batches: Iterable[tuple[Tensor, Tensor, Tensor]], threshold: float = WHOLE
) -> Iterator[Tensor]:
    """Yield for each batch which prompts the drafter answers like the target: bool [B].

    student: an `even` drafter, which reads tokens only. batches: tokens int64 [B, T]; attention mask and loss mask
    bool [B, T], the latter on the target's greedy responses. threshold: share of a response, above 0 and up to 1, that
    the drafter must predict after the target's own tokens; with 1 the drafter generates this response by itself. The
    tokens 0 and 1 of a text are excluded: drafts begin at token 2.
    """
    assert student.even, "the plan refuses drafters that read the target's features"
    was_training = student.training
    student.eval()
    for tokens, real, learnt in batches:
        anchors = torch.arange(1, tokens.shape[1] - 1, device=tokens.device).expand(len(tokens), -1)
        nothing = torch.zeros((*tokens.shape, 0), device=tokens.device)
        (logits,) = student(TeacherBatch(tokens, real, learnt, nothing, nothing), anchors, 1)
        best = logits.argmax(-1)
        wanted = (real & learnt)[:, 2:]
        same = (best if student.vocabulary is None else student.vocabulary.to(best.device)[best]) == tokens[:, 2:]
        count = wanted.sum(1)
        yield (count > 0) & ((same & wanted).sum(1) >= threshold * count)
    student.train(was_training)


def unsolved_texts(corpus: Dataset, student: TrainableDrafter, drafter: str, threshold: float = WHOLE) -> Dataset:
    """Return the samples for the next drafter: those that `solved_by_drafter` does not mark.

    student: the first drafter, on its device. drafter: its folder, for messages. Raise RecipeError if none is left.
    """
    device = next(student.parameters()).device
    marks = torch.cat(list(solved_by_drafter(student, _batches(corpus, device), threshold))).cpu().numpy()
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
