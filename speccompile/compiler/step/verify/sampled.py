"""Speculative sampling (Leviathan et al. 2023, Chen et al. 2023) for drafts that were sampled.

The children of a node were drawn one after the other without replacement, from the drafter's distribution q over C
candidates. They are tried in turn: x is accepted with probability min(1, p(x) / q(x)); when it is not, p becomes max(0,
p - q), normalized, and q loses x, normalized (recursive rejection sampling without replacement: Jeon et al. 2024,
Sequoia). If no child is accepted, the next token is drawn from the remaining p. q is zero outside its candidates, so
there p is only scaled: all nodes are decided at once on tensors of C numbers, and the vocabulary is read once, for the
last node of the path.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.compiler.step import ops
from speccompile.compiler.step.verify.target import Target, at_row, at_token
from speccompile.tree import Tree


class DraftDistribution(NamedTuple):
    """Distributions from which the children of node 0 .. N - 1 were drawn: ids int64 and probs float32 [B, N, C].

    uniforms float32 [B, N]: one for each draft.
    """

    ids: Tensor
    probs: Tensor
    uniforms: Tensor


class AcceptanceTest(NamedTuple):
    """Result of the test. accepted bool [B, M]: each node against its parent, the root included.

    residual float32 [B, N, C]: the target's remaining probabilities at the candidates of every node after its children
    were rejected, on the scale of its probabilities elsewhere.
    """

    accepted: Tensor
    residual: Tensor


class Speculative(nn.Module):
    """Acceptance of sampled drafts in a constant tree, a chain included. lenience: multiplies q; 1 is exact."""

    def __init__(self, tree: Tree, lenience: float = 1.0) -> None:
        super().__init__()
        self.lenience, self.drafts = lenience, tree.drafts
        children = [[*nodes, *[0] * (tree.branching - len(nodes))] for nodes in tree.children[:-1]]  # the last has none
        self.register_buffer("of_rank", torch.tensor(children), persistent=False)  # [N, ranks], 0 for none
        places = [0] + [tree.parents[node] * tree.branching + tree.ranks[node] for node in range(1, tree.drafts + 1)]
        self.register_buffer("places", torch.tensor(places), persistent=False)  # [M]: a node's index among the children

    def forward(self, target: Target, tokens: Tensor, is_draft: Tensor, proposals: DraftDistribution) -> AcceptanceTest:
        """Test every node. tokens int64 [B, M] of the nodes; is_draft bool [B, M]: false for the root and for
        padding."""
        batch, rows = tokens.shape[0], torch.arange(self.drafts, device=tokens.device).expand(tokens.shape[0], -1)
        p = at_token(target.probs, rows, proposals.ids)  # [B, N, C]
        p = torch.where(p >= at_row(target.threshold, rows)[..., None], p, 0.0)
        elsewhere = (at_row(target.mass, rows) - p.sum(-1)).clamp(min=0)
        q, accepted = proposals.probs, list[Tensor]()
        is_open = torch.ones_like(elsewhere, dtype=torch.bool)  # no child was accepted yet
        for rank in range(self.of_rank.shape[1]):
            child = self.of_rank[:, rank].expand(batch, -1)  # [B, N]
            chosen = (proposals.ids == tokens.gather(1, child)[..., None]).float()
            uniform = proposals.uniforms.gather(1, (child - 1).clamp(min=0))
            p_sum, q_sum = p.sum(-1) + elsewhere, q.sum(-1)
            p_x, q_x = (p * chosen).sum(-1), self.lenience * (q * chosen).sum(-1)
            tried = is_open & is_draft.gather(1, child) & (q_x > 0)
            accepted.append(tried & (uniform * q_x * p_sum < p_x * q_sum))
            is_open = is_open & ~accepted[-1]
            # max(0, p / p_sum - lenience * q / q_sum), on the scale that p has elsewhere
            rest = (p - self.lenience * q * (p_sum / q_sum.clamp(min=1e-30))[..., None]).clamp(min=0)
            p = torch.where(tried[..., None], rest, p)
            q = torch.where(tried[..., None], q * (1 - chosen), q)
        flat = torch.stack(accepted, 2).flatten(1)
        return AcceptanceTest(flat.gather(1, self.places.expand(batch, -1)), p)

    def bonus(self, target: Target, trial: AcceptanceTest, ids: Tensor, last: Tensor, depth: Tensor) -> Tensor:
        """Draw int64 [B, 1]: the token after the path. ids int64 [B, N, C]; last, depth int64 [B]: the path's last
        node."""
        assert target.probs is not None
        assert target.threshold is not None
        assert target.uniforms is not None
        row = last.clamp(max=target.probs.shape[1] - 1)[:, None]
        vocabulary = target.probs.shape[2]
        p = target.probs.gather(1, row[..., None].expand(-1, -1, vocabulary)).squeeze(1)  # [B, V]
        p = torch.where(p >= target.threshold.gather(1, row), p, 0.0)
        node = last.clamp(max=self.drafts - 1)[:, None, None].expand(-1, 1, ids.shape[2])
        candidates = ids.gather(1, node).squeeze(1)
        left, whole = trial.residual.gather(1, node).squeeze(1), p.gather(1, candidates)
        residual = p.scatter(1, candidates, torch.where((last < self.drafts)[:, None], left, whole))
        # Nothing is left only if p equals q up to rounding.
        weights = torch.where(residual.sum(1, keepdim=True) > 0, residual, p)[:, None]
        drawn = ops.draw(weights, torch.zeros_like(row, dtype=weights.dtype), at_row(target.uniforms, depth[:, None]))
        return torch.where(target.is_sampled, drawn, target.best.gather(1, row))
