"""Losses of a draft: divergences between the token distributions of the drafter (q) and of the target (p).

    ce      -log q(y), y the text's token                    sequence-level distillation (Kim and Rush 2016)
    fkl     KL(p || q)                                       DistillSpec (Zhou et al. 2024)
    rkl     KL(q || p)                                       Online Speculative Decoding (Liu et al. 2024)
    jsd     beta KL(p || m) + (1 - beta) KL(q || m)          GKD (Agarwal et al. 2024), m = beta p + (1 - beta) q
    tvd     1 - alpha                                        DistillSpec
    nla     -log alpha
    hybrid  w KL(p || q) + (1 - w) (1 - alpha)               w = exp(-3 alpha), without gradient

alpha = sum min(p, q) is the probability that speculative sampling accepts a draft (Leviathan et al. 2023). As in GKD
and in `trl`, jsd is fkl for beta 0 and rkl for beta 1.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

HYBRID_SLOPE = 3.0  # how fast `hybrid` leaves KL behind as alpha grows: published with it


class DraftLoss(NamedTuple):
    """Loss of drafts [..]. loss: float32, 0 for drafts that do not count. accepted: float32, alpha with the unmodified
    target, without gradient. counted: bool, False if the label lies outside the drafter's vocabulary."""

    loss: Tensor
    accepted: Tensor
    counted: Tensor


def divergence(
    kind: str,
    drafter_logits: Tensor,
    target_logits: Tensor,
    tokens: Tensor,
    *,
    beta: float = 0.5,
    hard: float = 0.0,
    vocabulary: Tensor | None = None,
) -> DraftLoss:
    """Return the divergence of the drafter from the target, in nats; tvd and hybrid contain probabilities, too.

    drafter_logits [.., Vd], target_logits [.., V]: any floating dtype, computed in float32 or wider; only the drafter
    gets gradients. tokens int64 [..]: the text's. beta: of jsd, from 0 to 1. hard: share of the target's probability
    mass that moves to its best token before the comparison. vocabulary int64 [Vd]: the target's token ids in the
    drafter's vocabulary, distinct, in any order; None for all. KL and jsd normalise p over this vocabulary. alpha uses
    all tokens, so that tokens outside the vocabulary count as rejected.
    """
    said = _log_shares(drafter_logits)
    with torch.no_grad():  # excluded tokens get a finite logarithm: exp(-inf) * -inf is NaN
        meant = _log_shares(target_logits).clamp_(min=torch.finfo(torch.float32).min)
    places = None if vocabulary is None else draft_token_index(vocabulary.to(said.device), meant.shape[-1])
    counted = torch.ones_like(tokens, dtype=torch.bool)
    if places is not None:
        counted = places[tokens if kind == "ce" else meant.max(-1).indices] >= 0
    with torch.no_grad():
        accepted = torch.minimum(_kept(meant, vocabulary), said).exp().sum(-1)
    if kind == "ce":
        loss = -token_log_probs(said, tokens, places)
    else:
        whole = _kept(_hardened(meant, hard), vocabulary)
        loss = _distance(kind, said, whole, whole if vocabulary is None else _log_shares(whole), beta)
    return DraftLoss(loss.masked_fill(~counted, 0.0), accepted, counted)


def token_log_probs(said: Tensor, tokens: Tensor, places: Tensor | None) -> Tensor:
    """Return log q [.., Vd] at the target's tokens [..]; tokens outside the vocabulary read the drafter's token 0."""
    own = tokens if places is None else places[tokens].clamp(min=0)
    return said.gather(-1, own[..., None])[..., 0]


def draft_token_index(vocabulary: Tensor, size: int) -> Tensor:
    """Return the index of each of the target's tokens in the drafter's vocabulary [Vd]: int64 [size], -1 if absent."""
    places = torch.full((size,), -1, dtype=torch.int64, device=vocabulary.device)
    places[vocabulary] = torch.arange(len(vocabulary), device=vocabulary.device)
    return places


def _distance(kind: str, said: Tensor, whole: Tensor, goal: Tensor, beta: float) -> Tensor:
    """Return a divergence. said: log q; whole: log p of the drafter's tokens, normalised over all tokens; goal: log p
    normalised over the drafter's tokens."""
    match kind:
        case "fkl":
            return _kl(goal, said)
        case "rkl":
            return _kl(said, goal)
        case "jsd":
            return _jsd(goal, said, beta)
        case "nla":
            return -torch.minimum(whole, said).logsumexp(-1)
    refused = 1 - torch.minimum(whole, said).exp().sum(-1)
    if kind == "tvd":
        return refused
    assert kind == "hybrid", "the plan refuses other losses"
    weight = torch.exp(-HYBRID_SLOPE * (1 - refused.detach()))
    return weight * _kl(goal, said) + (1 - weight) * refused


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _jsd(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
    if beta in (0, 1):
        return _kl(log_q, log_p) if beta else _kl(log_p, log_q)
    mixed = torch.logaddexp(log_p + math.log(beta), log_q + math.log1p(-beta))
    return beta * _kl(log_p, mixed) + (1 - beta) * _kl(log_q, mixed)


def _hardened(log_p: Tensor, hard: float) -> Tensor:
    if hard == 0:
        return log_p
    nothing = torch.finfo(torch.float32).min
    rest = (log_p + math.log1p(-hard)).clamp_(min=nothing) if hard < 1 else torch.full_like(log_p, nothing)
    best = log_p.max(-1, keepdim=True).indices
    return rest.scatter(-1, best, torch.logaddexp(rest.gather(-1, best), rest.new_tensor(math.log(hard))))


def _kept(log_p: Tensor, vocabulary: Tensor | None) -> Tensor:
    return log_p if vocabulary is None else log_p[..., vocabulary.to(log_p.device)]


def _log_shares(logits: Tensor) -> Tensor:
    return functional.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
