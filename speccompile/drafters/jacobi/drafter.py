"""Jacobi decoding (Santilli et al. 2023, 2305.10427): a fixed-point iteration of the target over K tokens at once.

Every round replaces each draft token with the target's prediction at its predecessor. Drafts that do not change have
been accepted; the predictions after rejected drafts are the next drafts. They are outputs of the target's verification,
so the drafter has no state.
"""

import torch
from torch import Tensor

from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree


def make(context: DrafterContext) -> Drafter:
    """Return the drafter; it has no state."""
    return Jacobi(context.tree)


class Jacobi(Drafter):
    """Drafts the target's predictions after the rejected drafts, and repeats the last one to the end of the chain."""

    shape: Tree
    target_top_k = 1

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self.shape, self.tokens = tree, tree.drafts

    def states(self) -> list[State]:
        return []

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        assert accepted.successors is not None, "a drafter that iterates is given what the target says"
        assert accepted.row_tokens is not None
        rows = (accepted.row_tokens >= 0).long().sum(1, keepdim=True)  # [B, 1]: of the last given token and drafts
        # Row 0 is the last given token's, which n_path counts if drafts were verified; otherwise it is the only row.
        ahead = accepted.n_path[:, None] + torch.arange(self.tokens, device=rows.device)
        drafts = accepted.successors[:, :, 0].gather(1, torch.minimum(ahead, rows - 1).clamp(min=0))
        bonus = accepted.path.gather(1, accepted.n_path[:, None])
        n_total = torch.where(accepted.n_path > 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([bonus, drafts], 1), n_total, [])
