"""Jacobi decoding (Santilli et al. 2023, 2305.10427): a fixed point of the target, sought over K tokens at once.

Every round all guesses become what the target says behind the ones before them. Those that stay as they are have been
accepted as drafts; what it said behind the refused ones are the next drafts. They are in the target's own rows, so that
nothing is kept from round to round.
"""

import torch
from torch import Tensor

from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree


def make(site: DrafterContext) -> Drafter:
    """There is no state."""
    return Jacobi(site.tree)


class Jacobi(Drafter):
    """Drafts what the target said behind the refused drafts, and repeats the last of it to the end."""

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
        rows = (accepted.row_tokens >= 0).long().sum(1, keepdim=True)  # [B, 1]: the last given token's, and drafts'
        # Row 0 is the last given token's: one of n_path where drafts were given, and the only row elsewhere.
        ahead = accepted.n_path[:, None] + torch.arange(self.tokens, device=rows.device)
        drafts = accepted.successors[:, :, 0].gather(1, torch.minimum(ahead, rows - 1).clamp(min=0))
        bonus = accepted.path.gather(1, accepted.n_path[:, None])
        n_total = torch.where(accepted.n_path > 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([bonus, drafts], 1), n_total, [])
