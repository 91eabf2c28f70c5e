"""Trainable drafters: the modules that are compiled, applied to whole texts, and the description of a new drafter.

    <kind>/training.py    student(context, depth) -> TrainableDrafter: the modules of `drafter.py`, with the weights of
                          the plan's head or model; new(folder, wanted) writes a new one in a dialect of the method

An anchor is a position in a text from which drafts are made: the last known token, which is the bonus token of a round.
Its features are missing, because the target has not processed it yet. Draft d (0 the first) of anchor a predicts token
a + 1 + d; its label is the target's prediction after token a + d.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.compiler.weights.tensor import with_numbers
from speccompile.drafters.saving import save_head
from speccompile.drafters.weights import IDS, TargetEmbeddings
from speccompile.plan.head import HeadPlan

EMBEDDING = "embed_tokens.weight"


@dataclass(frozen=True)
class TeacherBatch:
    """A batch of texts with the target's outputs.

    tokens int64 [B, T]. attention_mask bool [B, T]: False for padding, which is on the right. loss_mask bool [B, T]:
    tokens to predict, such as those of answers. features float32 [B, T, F]: the drafter's taps concatenated in their
    order. logits float32 [B, T, V]: the target's, after every token.
    """

    tokens: Tensor
    attention_mask: Tensor
    loss_mask: Tensor
    features: Tensor
    logits: Tensor


@dataclass(frozen=True)
class SourcedBatch(TeacherBatch):
    """A batch of answers of a target with an encoder. sources int64 [B, n]: its sources; is_source bool [B, n]: False
    for padding, which is on the right. Of a target that hears the sources are features float32 [B, M, F]."""

    sources: Tensor
    is_source: Tensor


class TrainableDrafter(nn.Module, ABC):
    """A drafter in training. Training updates its parameters that require gradients, in float32.

    taps         names of the target's hidden states that it reads, as in `step.taps`
    depth        number of consecutive drafts to train
    every        whether one pass drafts from all positions; otherwise each anchor costs a separate block
    even         whether a draft depends on its position alone and not on its depth, as a language model's
    vocabulary   int64 [Vd]: the target's token ids of its draft vocabulary, None for all
    """

    taps: tuple[str, ...] = ()
    depth: int
    every: bool = True
    even: bool = False
    vocabulary: Tensor | None = None

    @abstractmethod
    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """Return teacher-forced logits for depths 1 to `depth` after the anchors: `depth` tensors float32 [B, A, Vd].

        anchors int64 [B, A], ascending, from 1 on. If `every`, passing all positions as anchors costs one pass.
        Logits of drafts past the end of the text are included and have no meaning.
        """

    def own_loss(
        self, seen: TeacherBatch, anchors: Tensor, drafted: list[Tensor], accepted: list[Tensor]
    ) -> Tensor | None:
        """Return an additional loss per draft, float32 broadcastable to [B, A, depth] and weighted as the draft's main
        loss; None for none. It is not averaged: the parts of an accumulated step have different counts.

        accepted: for every depth, float32 [B, A] without gradient: the probability that the target accepts the draft; 0
        for drafts outside of the loss mask, whose loss does not count.
        """
        return None

    @abstractmethod
    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the complete drafter to a new folder, in its original dialect."""


def rows_at(x: Tensor, places: Tensor) -> Tensor:
    """Return the rows [B, A, h] of x [B, N, h] at places [B, A]."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))


class TrainableHead(TrainableDrafter):
    """A trainable head. The network's parameters have the normalised names of its plan. All of them are trained except
    a copy of the target's embedding, because a text would update the rows of its own tokens alone."""

    def __init__(self, head: HeadPlan, network: nn.Module, depth: int) -> None:
        super().__init__()
        self.head, self.network, self.depth, self.taps = head, with_numbers(network).float(), depth, head.taps
        vocabulary = getattr(network, "vocabulary", None)
        self.vocabulary = None if vocabulary is None else vocabulary.ids
        for name, parameter in self.network.named_parameters():
            is_copy = name == EMBEDDING and parameter.shape[1] == head.hidden_size
            parameter.requires_grad_(name in head.tensors and parameter.is_floating_point() and not is_copy)

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the head with its published tensor names and other files, as `save_head` does."""
        own = dict(self.network.named_parameters()) | dict(self.network.named_buffers())
        trained = {name: own[name] for name in self.head.tensors if name not in IDS}
        save_head(self.head, trained, self.described, folder, dtype)

    def described(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the config.json to save, given that of the original folder."""
        return config


@dataclass(frozen=True)
class NewDrafter:
    """Specification of a new drafter.

    config: config.json of the target's text decoder. ends: the target's embedding and head, as initial weights.
    depth: number of drafts to train. sizes: the sizes under `train.shape` (layers, hidden_size, ..) with every default
    decided. taps: of the target, by the names of `step.taps`. kept: int64 [Vd], ascending: tokens of the draft
    vocabulary, None for the target's. dialect: layout of the folder. reference: name of the target for other engines.
    seed: of the random weights. target: the target's folder, whose tokenizer a language model copies. counts: int64
    [V]: number of occurrences of each token in the texts, None if unknown.
    """

    config: Mapping[str, Any]
    ends: TargetEmbeddings
    depth: int
    sizes: Mapping[str, int | str]
    taps: tuple[str, ...]
    kept: Tensor | None
    dialect: str
    reference: str
    seed: int
    target: Path | None = None
    counts: Tensor | None = None


def has_label(seen: TeacherBatch, places: Tensor) -> Tensor:
    """Return bool of the shape of `places` int64 [B, ..]: whether the position is in the text and in the loss mask."""
    last = seen.tokens.shape[1] - 1
    there = (seen.attention_mask & seen.loss_mask).gather(1, places.clamp(max=last).flatten(1)).view(places.shape)
    return there & (places <= last)
