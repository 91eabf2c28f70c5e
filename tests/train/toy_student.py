"""A drafter that is right now and then, asked in all the ways that there are; and a target's text without a cache."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from tests import zoo

DEPTH = 3
VOCABULARY = zoo.config("llama").vocab_size


class Toy(TrainableDrafter):
    """It says of draft d behind an anchor what a table says of that token, d and, unless it is `even`, the tokens
    between; rarely the target's best token, so that its logits are moved towards that."""

    def __init__(self, *, every: bool, even: bool, kept: Tensor | None = None, towards: float = 6.0) -> None:
        super().__init__()
        self.depth, self.every, self.even, self.vocabulary, self.towards = DEPTH, every, even, kept, towards
        size = VOCABULARY if kept is None else len(kept)
        table = torch.randn(DEPTH, VOCABULARY, size, generator=torch.Generator().manual_seed(5))
        self.table = nn.Parameter(table)
        self.asked: list[int] = []

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        self.asked.append(anchors.shape[1])
        return [self.say(seen, anchors, step) for step in range(depth)]

    def say(self, seen: TeacherBatch, anchors: Tensor, step: int) -> Tensor:
        places = (anchors + step).clamp(max=seen.tokens.shape[1] - 1)
        read = seen.tokens.gather(1, places if self.even else anchors)
        target = seen.logits.gather(1, places[..., None].expand(-1, -1, VOCABULARY))
        hint = target if self.vocabulary is None else target[..., self.vocabulary]
        return self.table[0 if self.even else step][read] + self.towards * hint

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        raise NotImplementedError


KINDS = {
    "every place": partial(Toy, every=True, even=False),
    "even": partial(Toy, every=True, even=True),
    "blocks": partial(Toy, every=False, even=False),
    "a vocabulary of its own": partial(Toy, every=True, even=False, kept=torch.arange(0, VOCABULARY, 2)),
}


def continued(model: nn.Module, prompt: list[int], count: int, ends: tuple[int, ...]) -> list[int]:
    """Return the greedy continuation, decoded without a cache."""
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + count and tokens[-1] not in ends:
            tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
