"""What all heads have in common, whichever way they draft."""

from abc import ABC, abstractmethod
from typing import Any, Self

from target import Seen, Target
from torch import Tensor, nn

Texts = dict[str, Tensor]


class Head(nn.Module, ABC):
    """Subclasses have `loss`, `accepted` and `config`."""

    rate = 1.0  # of the rates of learning
    files: tuple[str, ...] = ()  # of the target's folder, which the head's folder has as well

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = [target]  # in a list: no parameters of this module

    @classmethod
    def new(cls, target: Target, texts: Texts) -> Self:
        """One that has learnt nothing yet. texts: those it will learn from."""
        return cls(target)

    @classmethod
    def found(cls, target: Target, config: dict[str, Any], tensors: Texts, report: dict[str, Any]) -> Self:
        """As it was when it was saved, but for its tensors. report: what is in its training.json."""
        return cls(target)

    @property
    def embedding(self) -> Tensor:
        return self.target[0].embedding

    def tensors(self) -> Texts:
        """What is saved, by its published names."""
        return self.state_dict()

    def restore(self, tensors: Texts) -> None:
        """Take them back, in float32."""
        self.load_state_dict(tensors)

    def extra(self) -> Texts:
        """What is saved as it is and not restored."""
        return {}

    @abstractmethod
    def loss(self, seen: Seen, weights: Tensor) -> Tensor:
        """weights [B, T]: how much each text's places count."""

    @abstractmethod
    def accepted(self, seen: Seen, first: int, count: int) -> dict[str, Tensor]:
        """Of the rounds whose bonus is token first, first + 1, ..: how many drafts the target accepts, [count]."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What its config.json says."""


def rows_of(x: Tensor, places: Tensor) -> Tensor:
    """x [B, T, N] at the places [B, ...] of each text: [B, ..., N]."""
    return x.gather(1, places.flatten(1)[..., None].expand(-1, -1, x.shape[-1])).unflatten(1, places.shape[1:])


def run_of(right: Tensor) -> Tensor:
    """How many drafts are right before the first wrong one: [..., drafts] to [...]."""
    return right.long().cumprod(-1).sum(-1)
