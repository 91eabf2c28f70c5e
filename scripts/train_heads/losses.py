"""The loss of all heads: soft cross entropy towards what the target thinks."""

import torch
from torch import Tensor

HARD = 0.5  # the share of the target's best token, see wanted
PATIENCE = 0.5  # what a depth counts at least of the one before it, see compared


def wanted(logits: Tensor, best: Tensor) -> Tensor:
    """What the target thinks, with the share HARD of it moved to its best token."""
    probabilities = logits.softmax(-1).mul_(1 - HARD)
    return probabilities.scatter_add_(-1, best[..., None], torch.full_like(best[..., None], HARD, dtype=torch.float))


def compared(logits: Tensor, goal: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of each row towards the goal; and how much a depth counts that needs `tokens` drafted here.

    That is less where the drafter would not have drafted them (D-PACE).
    """
    said = logits.float().log_softmax(-1)
    chance = said.detach().gather(-1, tokens[..., None])[..., 0].exp()
    return -(said * goal).sum(-1), PATIENCE + (1 - PATIENCE) * chance
