"""Acceptance rules for deterministic drafts: the exact one, and approximate ones.

A rule says for every draft whether it may follow the token before it. The token after the accepted path is the target's
own choice under every rule. All but `Exact` may accept tokens that the target would not have chosen.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from speccompile.compiler.step.verify.target import Target, at_row, at_token

_LOWEST = -1e4
"""Replaces the logarithm of a zero probability: its term in an entropy is zero, and no NaN."""


class Drafts(NamedTuple):
    """Drafts. tokens int64 [B, P], and parents int64 [B, P]: the rows of the nodes that they follow."""

    tokens: Tensor
    parents: Tensor


class Rule(Protocol):
    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        """Return bool [B, P]: which drafts may follow their parents. choices int64 [B, R]."""
        ...


@dataclass(frozen=True)
class Exact:
    """Accept the target's choice: its argmax (Stern et al. 2018), or the token that was drawn from its distribution.

    The latter is speculative sampling for a draft distribution with all its mass on one token per sibling: a draft is
    accepted with the target's probability, and otherwise the next token is drawn from the target's distribution without
    the drafts.
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
    """Accept x when it is among the k best tokens and at most `gap` nats below the best (SpecDec, Xia et al. 2023)."""

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
    """Accept x when -log p(x) <= rollback nats (BiLD, Kim et al. 2023): the target rolls back a surprising draft."""

    rollback: float

    def __call__(self, target: Target, choices: Tensor, drafts: Drafts) -> Tensor:
        logs = torch.log_softmax(target.logits, -1)
        return at_token(logs, drafts.parents, drafts.tokens) >= -self.rollback
