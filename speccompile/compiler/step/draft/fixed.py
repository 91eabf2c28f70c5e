"""Drafts in a shape that is constant in the graph, token by token: a chain or a tree."""

from typing import Any

import torch
from torch import Tensor

from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.children import GreedyChildren, SampledChildren, TreeLevel, levels
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.contract import MAX_DRAFT_CANDIDATES
from speccompile.tree import Tree


class FixedDrafter(Drafter):
    """A drafter that chooses the children of every node from its network's logits after the node.

    After a round with a chain, a network that commits drafts misses at most two tokens: the last draft, if it was
    accepted, and the bonus token. All other networks drop the rows of drafts and catch up on the whole path in the next
    round; so do all if other drafters write to the window as well (`merged`).

    sample: drafts are sampled under the host's settings, and their distribution is returned; else they are the best
    tokens. fallback: minimum probability of a draft, for chains: drafting stops before a less probable one (BiLD, Kim
    et al. 2023; Kangaroo, Liu et al. 2024). The confidence in a draft must not depend on the sampled token.
    """

    shape: Tree

    def __init__(
        self,
        reader: DraftNetwork,
        tree: Tree,
        *,
        sample: bool = False,
        fallback: float | None = None,
        merged: bool = False,
    ) -> None:
        super().__init__()
        assert fallback is None or tree.is_chain, "the plan refuses trees that stop early"
        self.reader, self.shape, self.fallback = reader, tree, fallback
        self.tokens, self.taps, self.pairs_next_token = tree.drafts, reader.taps, reader.pairs_next_token
        self.reads_source, self.media = reader.reads_source, reader.media
        self.can_commit_drafts = reader.can_commit_drafts and tree.is_chain and not merged
        self.is_recurrent = reader.is_recurrent
        whole = tree.depth + 1 + self.is_recurrent
        self.catch_up = (2 if self.can_commit_drafts else whole) if reader.has_cache else 0
        self.candidates = min(MAX_DRAFT_CANDIDATES, reader.size) if sample else 0

    def states(self) -> list[State]:
        return self.reader.states()

    def target_caches(self) -> list[State]:
        return self.reader.target_caches()

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        reading, vocabulary = self.reader.begin(accepted, states), self.reader.vocabulary
        children = (
            SampledChildren(accepted, self.candidates, vocabulary) if self.candidates else GreedyChildren(vocabulary)
        )
        drafts, confidence = list[Tensor](), list[Tensor]()
        for level in levels(self.shape):
            logits = self._read(reading, drafts[-1], level) if drafts else reading.logits
            if self.fallback is not None:
                confidence.append(self.reader.confidence(reading, logits))
            drafts.append(children.choose(logits, level, drafts))

        window = torch.cat([reading.bonus, *drafts], 1)
        n_drafts = self._n_confident(torch.cat(confidence, 1)) if confidence else self.tokens
        n_total = torch.where(accepted.n_path > 0, 1 + n_drafts, 1)  # no constant: engines bind every output's memory
        drafted = Drafted(window, n_total, reading.commit_drafts() if self.can_commit_drafts else reading.commit())
        if isinstance(children, SampledChildren):
            ids, probs = children.table(self.tokens)
            drafted = drafted._replace(ids=ids, probs=probs)
        return drafted

    def _read(self, reading: DraftRound, drafts: Tensor, level: TreeLevel) -> Tensor:
        """Return logits float32 [B, T, V] after the level's nodes, which are some or all of the drafts int64 [B, n]."""
        tree = self.shape
        depth = tree.depths[level.nodes[0]]
        inner = [node for node, its in enumerate(tree.children) if its and 0 < tree.depths[node] <= depth]
        ancestors = [[other in tree.root_paths[node] for other in inner] for node in level.nodes]
        if len(level.nodes) < drafts.shape[1]:
            first = tree.depths.index(depth)
            drafts = drafts.index_select(1, torch.tensor([node - first for node in level.nodes]))
        before = [node for node in inner if tree.depths[node] == depth - 1]
        parents = [before.index(tree.parents[node]) if depth > 1 else 0 for node in level.nodes]
        return reading.forward_drafts(drafts, depth, _of_each(ancestors, drafts), _of_each(parents, drafts))

    def _n_confident(self, confidence: Tensor) -> Tensor:
        """Return int64 [B]: number of drafts before the first one below the minimum confidence. confidence float32 [B,
        N]."""
        return ((confidence < self.fallback).long().cumsum(1) == 0).long().sum(1)


def _of_each(constant: list[Any], rows: Tensor) -> Tensor:
    """Expand a constant to all rows [B, ..]."""
    one = torch.tensor([constant])
    return one if rows.shape[0] == 1 else one.expand(rows.shape[0], *[-1] * (one.dim() - 1))
