"""What learns: the modules that are compiled, over whole texts, and the folder that a new drafter begins as.

    <kind>/training.py    learner(site, depth) -> Learner: the modules of `drafter.py`, with the weights of the plan's
                          head or model; new(folder, wanted) writes a new one in a dialect that the family reads

A place of a text is called an anchor where drafts stand behind it: the last token that is known, whose own features
nobody has, because the target has not read it yet. It is the bonus token of a round. Draft d (0 the first) of anchor a
guesses token a + 1 + d, which the target says behind token a + d.
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
    """Texts, and what the target made of them.

    tokens int64 [B, T]. real bool [B, T]: no padding, which lies behind. learnt bool [B, T]: tokens that are to be
    guessed, such as those of answers. features float32 [B, T, F]: the learner's taps beside each other, in their order.
    logits float32 [B, T, V]: the target's, behind every token.
    """

    tokens: Tensor
    attention_mask: Tensor
    loss_mask: Tensor
    features: Tensor
    logits: Tensor


class TrainableDrafter(nn.Module, ABC):
    """A drafter while it learns. Its parameters that have gradients are what is trained, in float32.

    taps         what it reads of the target, as in `step.taps`
    depth        drafts behind one another that it learns
    every        whether all places of a text are anchors at the price of one; else each costs a block of its own
    even         whether a draft depends on its place alone, and not on how deep it is: a language model's
    vocabulary   int64 [Vd]: which tokens of the target its own are, None for all
    """

    taps: tuple[str, ...] = ()
    depth: int
    every: bool = True
    even: bool = False
    vocabulary: Tensor | None = None

    @abstractmethod
    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """What it says of each of `depth` drafts behind the anchors, the tokens before a draft being the text's: so
        many times float32 [B, A, Vd].

        anchors int64 [B, A], ascending, from 1 on. Where all are asked for, of every row alike, `every` is cheap.
        Drafts that would stand behind the text's end are given as well, and mean nothing.
        """

    def own_loss(
        self, seen: TeacherBatch, anchors: Tensor, drafted: list[Tensor], accepted: list[Tensor]
    ) -> Tensor | None:
        """What it learns besides: a loss of each draft, float32 [B, A, depth] or what broadcasts to it, which is
        weighed as the draft is; None for nothing. No mean over them: the parts of a step have different counts.

        accepted: of every draft, float32 [B, A], the probability with which the target takes it, without gradient; 0
        where a draft is not learnt, and its loss does not count.
        """
        return None

    @abstractmethod
    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write it whole into a new folder, in the dialect that it came in."""


class TrainableHead(TrainableDrafter):
    """A head: the network's parameters have the normalised names of its plan. All of them are trained but a copy of the
    target's embedding, of which a text would move the rows of its own tokens alone."""

    def __init__(self, head: HeadPlan, network: nn.Module, depth: int) -> None:
        super().__init__()
        self.head, self.network, self.depth, self.taps = head, with_numbers(network).float(), depth, head.taps
        vocabulary = getattr(network, "vocabulary", None)
        self.vocabulary = None if vocabulary is None else vocabulary.ids
        for name, parameter in self.network.named_parameters():
            is_copy = name == EMBEDDING and parameter.shape[1] == head.hidden_size
            parameter.requires_grad_(name in head.tensors and parameter.is_floating_point() and not is_copy)

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Under the names, and beside the files, as published; one file of weights."""
        own = dict(self.network.named_parameters()) | dict(self.network.named_buffers())
        trained = {name: own[name] for name in self.head.tensors if name not in IDS}
        save_head(self.head, trained, self.described, folder, dtype)

    def described(self, config: dict[str, Any]) -> dict[str, Any]:
        """config.json of what is saved, from that of the folder where it began."""
        return config


@dataclass(frozen=True)
class NewDrafter:
    """A new drafter, as it is asked for.

    config: of the target's text decoder, as its config.json has it. ends: its embedding and head, to begin with.
    depth: drafts that it learns. sizes: what the recipe says of its shape under `train.shape` (layers, hidden_size,
    ..), every default decided. taps: of the target, by the names of `step.taps`. kept: int64 [Vd], ascending: the
    tokens of its own vocabulary, None for the target's. dialect: whose layout the folder has. reference: the target's
    name, as other engines find it. target: its folder, whose tokenizer a language model gets as well. counts: int64
    [V], how often the texts have each of the target's tokens, where that is known.
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
    """bool, of the shape of `places` int64 [B, ..]: whether there is a token to be guessed, in the text and learnt."""
    last = seen.tokens.shape[1] - 1
    there = (seen.attention_mask & seen.loss_mask).gather(1, places.clamp(max=last).flatten(1)).view(places.shape)
    return there & (places <= last)
