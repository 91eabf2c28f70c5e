"""A tree that grows where the drafter is confident, for any draft network: EAGLE-2 (Li et al. 2024), and DDTree
(2604.12989), the best nodes of all trees that one pass makes."""

import torch
from torch import Tensor

from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.tree import ROOT

LEAST_LOSS = 1e-6
"""Minimum cost of a token's log-probability, relative to one plus the cost so far: more than float32 rounds off. So a
child always ranks after its parent, even with probability one, and no tie can lose a parent."""

LOWEST = -1e4
"""Replaces the logarithm of a zero probability, so that sums stay finite."""


class DynamicDrafter(Drafter):
    """Expand the best `top_k` nodes of each depth by their `top_k` best tokens, and keep the best N of all depths.

    A node's rank is its joint probability: the drafter's estimate that the whole path to it is accepted. The tree
    differs from round to round; the number of nodes does not. No row of a draft is committed, as in a constant tree.

    With top_k = N these are the N best nodes of the whole tree (DDTree): the parent of one of them is among the N best
    of its depth, and so is a token among the N best after its parent.
    """

    shape = None

    def __init__(self, reader: DraftNetwork, depth: int, top_k: int, tokens: int) -> None:
        super().__init__()
        self.reader, self.depth, self.top_k, self.tokens = reader, depth, top_k, tokens
        self.taps, self.pairs_next_token = reader.taps, reader.pairs_next_token
        self.reads_source, self.media = reader.reads_source, reader.media
        self.catch_up = depth + 1 if reader.has_cache else 0

    def states(self) -> list[State]:
        return self.reader.states()

    def target_caches(self) -> list[State]:
        return self.reader.target_caches()

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        reading = self.reader.begin(accepted, states)
        tokens, scores, parents = self._grow(reading)
        # Best first: with that, every node comes after its parent.
        best = scores.topk(self.tokens, dim=1).indices  # [B, N]: nodes 1, 2, ..
        is_parent = best[:, None, :] == parents.gather(1, best)[:, :, None]  # [B, N, N]; nowhere below the root
        numbers = torch.arange(1, self.tokens + 1, device=best.device)
        below = torch.where(is_parent, numbers, 0).sum(2)
        return Drafted(
            torch.cat([reading.bonus, tokens.gather(1, best)], 1),
            torch.where(accepted.n_path > 0, 1 + self.tokens, 1),
            reading.commit(),
            parents=torch.cat([torch.full_like(reading.bonus, ROOT), below], 1),
        )

    def _grow(self, reading: DraftRound) -> tuple[Tensor, Tensor, Tensor]:
        """Return all nodes that were considered, in the order of their creation, M = k + (depth - 1) k * k.

        tokens int64, scores float32 (joint log-probability), parents int64 (among the M, -1 for the root), [B, M] each.
        """
        k, logits, vocabulary = self.top_k, reading.logits, self.reader.vocabulary
        front, front_scores = torch.full_like(reading.bonus, ROOT), torch.zeros_like(reading.logits[:, :, 0])
        own = torch.eye(k, dtype=torch.int64)[None].expand(reading.bonus.shape[0], -1, -1)
        ancestors = own[:, :, :0]
        tokens, scores, parents, total = [], [], [], 0
        for depth in range(1, self.depth + 1):
            values, ids = torch.log_softmax(logits, 2).topk(k, dim=2)  # [B, T, k]
            ids = ids if vocabulary is None else vocabulary.of_target(ids)
            loss = torch.minimum(values.clamp(min=LOWEST), LEAST_LOSS * (front_scores - 1)[:, :, None])
            ids = ids if ids.shape[1] == front.shape[1] else ids.expand(loss.shape)  # the same after all nodes
            tokens.append(ids.flatten(1))
            scores.append((front_scores[:, :, None] + loss).flatten(1))
            parents.append(front[:, :, None].expand(ids.shape).flatten(1))
            if depth < self.depth:
                front_scores, slots = scores[-1].topk(k, dim=1)  # [B, k]
                parent = slots // k  # in the previous front
                if depth > 1:
                    ancestors = ancestors.gather(1, parent[:, :, None].expand(-1, -1, ancestors.shape[2]))
                ancestors = torch.cat([ancestors, own], 2)
                front, total = total + slots, total + tokens[-1].shape[1]
                logits = reading.forward_drafts(tokens[-1].gather(1, slots), depth, ancestors > 0, parent)
        return torch.cat(tokens, 1), torch.cat(scores, 1), torch.cat(parents, 1)
