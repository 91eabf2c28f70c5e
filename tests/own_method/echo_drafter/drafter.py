"""The torch module of the method: `make` is what a build asks for."""

import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a plan, for the buffers of its caches."""
    period = context.drafter.options["period"]
    return Echo(context.tree, period, context.shape.batch_size, context.shape.rows)


class Echo(Drafter):
    """Drafts the last `period` tokens again, as often as there is room. The text is its only state."""

    shape: Tree

    def __init__(self, tree: Tree, period: int, batch_size: int, rows: int) -> None:
        super().__init__()
        self.shape, self.tokens = tree, tree.drafts
        self.batch_size, self.rows = batch_size, rows
        self.back = torch.tensor([index % period + 1 - period for index in range(self.tokens)])

    def states(self) -> list[State]:
        return [State("tokens", torch.int64, (self.batch_size, self.rows))]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        text = ops.commit(states[0], accepted.path, accepted.length, 1)  # [B, S]
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: where the bonus token stands
        drafts = text.gather(1, (end + self.back).clamp(min=0))
        n_total = torch.where(accepted.n_path > 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([text.gather(1, end), drafts], 1), n_total, [text])
