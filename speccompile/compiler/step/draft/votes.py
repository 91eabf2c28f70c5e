"""Votes of earlier occurrences over the continuation: SuffixDecoding's policy (Oliaro et al. 2024), in tensors.

The continuations of a suffix form a trie; a node has one vote of each occurrence that passes through it, and its
probability is their share of all. Longer suffixes have fewer occurrences: every length has a separate trie, and the one
whose drafts have the highest expected acceptance wins.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

ONE = 1 << 16
"""Fixed-point probability one: integer sums are equal on every engine, so that all engines decide alike."""


@dataclass(frozen=True)
class SuffixPolicy:
    """Policy of suffix drafting. match: the longest suffix. A suffix of m tokens drafts factor * m + offset tokens, and
    none whose probability lies below the threshold. top_k: maximum number of drafts after one token; 1 for a chain."""

    match: int
    factor: float
    offset: float
    threshold: float
    top_k: int = 1

    def budgets(self, most: int) -> list[int]:
        """Return the number of drafts for a suffix of 0, 1, .. `match` tokens, at most `most`."""
        least = [0, *(self.factor * length + self.offset for length in range(1, self.match + 1))]
        return [max(0, min(most, math.floor(each + 1e-6))) for each in least]


class Continuations(NamedTuple):
    """Occurrences in one source, the best first. matched int64 [B, R]: tokens of the suffix, 0 for no occurrence;
    tokens int64 [B, R, K]: the continuation, -1 after its end, and anything after that."""

    matched: Tensor
    tokens: Tensor


class VotedTrie(NamedTuple):
    """Nodes of a trie, each after its parent, the most probable first. tokens int64 [B, N], 0 after the last; parents
    int64 [B, N]: the number of each node's parent, from 1 on, 0 for the suffix itself; count int64 [B]: number of
    nodes; matched int64 [B]: tokens of the suffix; shares int64 [B, N]: probabilities, in units of 1 / ONE."""

    tokens: Tensor
    parents: Tensor
    count: Tensor
    matched: Tensor
    shares: Tensor


class SuffixVote(nn.Module):
    """Choose drafts by votes over continuations.

    Candidates are the longest suffixes with at least 1, 2, 4, .. occurrences (as in suffix-gpu: a longer suffix with
    the same number of occurrences drafts the same). Of tokens with equal votes, the one that followed the best
    occurrence comes first; of equal scores, the first source's, and there the longest suffix's.
    """

    def __init__(self, policy: SuffixPolicy, nodes: int, depth: int) -> None:
        """nodes: maximum number of drafts, N; depth: maximum distance from the suffix, K."""
        super().__init__()
        self.policy, self.nodes, self.depth = policy, nodes, depth
        self.budgets = policy.budgets(nodes)

    def forward(self, found: list[Continuations]) -> VotedTrie:
        """Return the drafts of the best suffix. found: occurrences in several sources; the first one wins ties."""
        matched = torch.stack([each.matched for each in found], 1)  # [B, G, R]
        tokens = torch.stack([each.tokens for each in found], 1)  # [B, G, R, K]
        agree, first = self._trie(tokens)
        least, member = self._suffixes(matched)
        total = member.long().sum(3).clamp(min=1)  # [B, G, C]
        code, votes = self._best_nodes(agree, first, member)  # [B, G, C, N]

        shares = votes * ONE // total[..., None]
        budget = torch.tensor(self.budgets, device=matched.device)[least]
        wanted = (votes > 0) & (shares >= int(self.policy.threshold * ONE))
        wanted = wanted & (torch.arange(code.shape[3], device=code.device) < budget[..., None])
        score = torch.where(wanted, shares, 0).sum(3).flatten(1)  # [B, G * C]
        order = torch.arange(score.shape[1], device=score.device)
        best = (score * score.shape[1] + (score.shape[1] - 1 - order)).argmax(1)  # [B]; no two are equal

        def chosen(each: Tensor) -> Tensor:
            index = best[:, None, None].expand(-1, 1, each.shape[3])
            return each.flatten(1, 2).gather(1, index)[:, 0]

        group = best // least.shape[2]
        code, wanted, shares = chosen(torch.where(wanted, code, 0)), chosen(wanted), chosen(shares)
        return VotedTrie(
            torch.where(wanted, self._tokens_of(code, tokens, group), 0),
            torch.where(wanted, self._parents_of(code, wanted, first, group), 0),
            wanted.long().sum(1),
            least.flatten(1).gather(1, best[:, None])[:, 0],
            torch.where(wanted, shares, 0),
        )

    def _trie(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return agree bool [B, G, K, R, R]: whether two occurrences have the same continuation down to each depth; and
        first int64 [B, G, K, R]: the first occurrence that agrees with each, which represents the node; R if the
        continuation has ended."""
        count = tokens.shape[2]
        depths = torch.arange(self.depth, device=tokens.device)
        same = (tokens[:, :, :, None] == tokens[:, :, None]) & (tokens[:, :, :, None] >= 0)
        agreed = torch.where(same, self.depth, depths).amin(4)  # [B, G, R, R]: depths down to which they do
        agree = agreed[:, :, None] > depths[:, None, None]
        return agree, torch.where(agree, torch.arange(count, device=tokens.device), count).amin(4)

    def _suffixes(self, matched: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lengths of the candidate suffixes, int64 [B, G, C], 0 if there are too few occurrences; and the
        occurrences of each, bool [B, G, C, R]."""
        count = matched.shape[2]
        support = [(1 << power) - 1 for power in range(count.bit_length())]
        least = matched.index_select(2, torch.tensor(support, device=matched.device))
        return least, (matched[:, :, None] >= least[..., None]) & (least[..., None] > 0)

    def _best_nodes(self, agree: Tensor, first: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes with most votes, the best first: position of each, depth * R + occurrence, and its votes,
        int64 [B, G, C, N] each; votes are 0 after the last.

        A parent has at least the votes of its child and is less deep: it comes first.
        """
        count, own = agree.shape[3], torch.arange(agree.shape[3], device=agree.device)
        depths = torch.arange(self.depth, device=agree.device)
        votes = member[:, :, None].float() @ agree.float()  # [B, G, K, C, R]: of the node that each came through
        is_node = (first == own)[:, :, :, None] & member[:, :, None]
        order = votes * count - first[:, :, :, None]  # distinct for all nodes
        siblings = torch.cat([torch.ones_like(agree[:, :, :1]), agree[:, :, :-1]], 2)[:, :, :, None]
        better = siblings & is_node[..., None, :] & (order[..., None, :] > order[..., :, None])
        refused = better.float().sum(5) >= self.policy.top_k
        # depth of the first refused node on its path
        reached = torch.where(refused, depths[:, None, None], self.depth).amin(2, keepdim=True)
        kept = is_node & (reached > depths[:, None, None])
        ranked = (votes * self.depth + (self.depth - 1 - depths[:, None, None])) * count + (count - 1 - own)
        ranked = torch.where(kept, ranked, -1.0).transpose(2, 3).flatten(3)  # [B, G, C, K * R]
        best, code = ranked.topk(self.nodes, dim=3)
        return code, best.long().clamp(min=0) // (self.depth * count)

    def _tokens_of(self, code: Tensor, tokens: Tensor, group: Tensor) -> Tensor:
        """Return the tokens at nodes int64 [B, N] of one source's trie."""
        count = tokens.shape[2]
        index = (group[:, None] * count + code % count) * self.depth + code // count
        return tokens.flatten(1).gather(1, index)

    def _parents_of(self, code: Tensor, wanted: Tensor, first: Tensor, group: Tensor) -> Tensor:
        """Return the number of each node's parent, for nodes int64 [B, N] that are wanted; 0 if the parent is the
        suffix."""
        count = first.shape[3]
        above = (code - count).clamp(min=0)  # the same occurrence, a depth before
        stands = first.flatten(1).gather(1, group[:, None] * self.depth * count + above)
        parent = above // count * count + stands
        is_parent = (code[:, None, :] == parent[:, :, None]) & wanted[:, None, :] & (code >= count)[:, :, None]
        return torch.where(is_parent, torch.arange(1, self.nodes + 1, device=code.device), 0).sum(2)
