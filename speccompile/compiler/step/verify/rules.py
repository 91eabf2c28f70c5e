"""Rules of acceptance for drafts that are certain: the target's choice, and the approximate ones.

A rule says of every draft whether it may follow the token before it. The token behind the accepted path is the
target's own choice there, under every rule. All but `Exact` may accept what the target would not have chosen.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from speccompile.compiler.step.verify.target import Target, at_row, at_token

_LOWEST = -1e4
"""What stands for the logarithm of a probability that is zero: its part of an entropy is zero, and no NaN."""


class Drafts(NamedTuple):
    """tokens int64 [B, P], and parents int64 [B, P]: the rows of the nodes that they follow."""

    tokens: Tensor
    parents: Tensor


class Rule(Protocol):
    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        """bool [B, P]: which drafts may follow their parents; choices int64 [B, R]."""
        ...


@dataclass(frozen=True)
class Exact:
    """Accept what the target chose: its argmax (Stern et al. 2018), or the token that was drawn from its distribution.

    The latter is speculative sampling for a draft distribution with all its mass on one token a sibling: a draft is
    accepted with the target's probability, and otherwise the target's distribution without the drafts is drawn from.
    """

    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        return drafts.tokens == at_row(choices, drafts.parents)


@dataclass(frozen=True)
class Typical:
    """Accept x when p(x) > min(epsilon, delta * exp(-H(p))) (Medusa, Cai et al. 2024; Hewitt et al. 2022)."""

    epsilon: float
    delta: float

    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        logs = torch.log_softmax(target.logits, -1).clamp(min=_LOWEST)
        entropy = -(logs.exp() * logs).sum(-1)
        bound = (self.delta * torch.exp(-entropy)).clamp(max=self.epsilon)
        return at_token(logs.exp(), drafts.parents, drafts.tokens) > at_row(bound, drafts.parents)


@dataclass(frozen=True)
class TopK:
    """Accept x when it is among the k best tokens and at most `gap` nats behind the best (SpecDec, Xia et al. 2023)."""

    k: int
    gap: float

    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        best = target.logits.topk(min(self.k, target.logits.shape[-1]), -1).values  # [B, R, k]
        bound = torch.maximum(best[..., -1], best[..., 0] - self.gap)
        return at_token(target.logits, drafts.parents, drafts.tokens) >= at_row(bound, drafts.parents)


@dataclass(frozen=True)
class Lenient:
    """Accept x when p(x) >= lenience * max(p): lenience for greedy decoding (Leviathan et al. 2023, A.5)."""

    lenience: float

    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        bound = target.logits.amax(-1) + math.log(self.lenience)
        return at_token(target.logits, drafts.parents, drafts.tokens) >= at_row(bound, drafts.parents)


@dataclass(frozen=True)
class Rollback:
    """Accept x when -log p(x) <= rollback nats (BiLD, Kim et al. 2023): the target goes back where it is surprised."""

    rollback: float

    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        logs = torch.log_softmax(target.logits, -1)
        return at_token(logs, drafts.parents, drafts.tokens) >= -self.rollback
