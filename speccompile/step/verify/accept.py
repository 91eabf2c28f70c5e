"""Acceptance rules over a chain. One rule a function."""

import torch
from torch import Tensor


def accept_greedy(window: Tensor, n_given: Tensor, n_total: Tensor, target_tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Accept drafts while each is the target's argmax (Stern et al. 2018; the survey's greedy criterion). Exact.

    window int64 [B, W]; n_given, n_total int64 [B]; target_tokens int64 [B, R]: the target's argmax after window
    position n_given - 1 + r. Returns n_path int64 [B] (given and accepted; 0 in rows with nothing given) and bonus
    int64 [B, 1], the target's token after the path.
    """
    places = n_given[:, None] + torch.arange(target_tokens.shape[1], device=window.device)
    drafts = window.gather(1, places.clamp(max=window.shape[1] - 1))
    rejected = (drafts != target_tokens) | (places >= n_total[:, None])
    n_accepted = (rejected.long().cumsum(1) == 0).long().sum(1)
    bonus = target_tokens.gather(1, n_accepted.clamp(max=target_tokens.shape[1] - 1)[:, None])
    return torch.where(n_given > 0, n_given + n_accepted, 0), bonus
