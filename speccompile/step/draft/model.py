"""A smaller language model as drafter (Leviathan et al. 2023; Chen et al. 2023): a chain or a constant tree."""

import torch
from torch import Tensor

from speccompile.contract import CANDIDATES
from speccompile.step.decoder import Decoder
from speccompile.step.draft import Accepted, Drafted, Drafter, State
from speccompile.step.draft.children import Best, Drawn, Level, levels
from speccompile.step.draft.reading import Reading, cache_states
from speccompile.tree import Tree


class ModelDrafter(Drafter):
    """Keeps its own caches, which lag the target's: it catches up on the last C tokens of the path, then drafts.

    After a round with a chain its caches hold every token but the last draft. So the next round misses at most two:
    the last draft, if it was accepted, and the bonus token. Rows that turn out wrong lie behind the length and are
    overwritten. Of a tree nobody knows yet which branch will be accepted: its rows are thrown away, and the next round
    misses the whole path. The same holds for a chain beside others in the window (`merged`).

    sample: drafts are drawn by the host's settings, and it says from what; else they are the best tokens. fallback:
    BiLD's (Kim et al. 2023): it stops before a draft whose own probability is lower. For chains that are not sampled.
    """

    shape: Tree

    def __init__(
        self,
        decoder: Decoder,
        tree: Tree,
        *,
        sample: bool = False,
        fallback: float | None = None,
        merged: bool = False,
        prefix: str = "drafter",
    ) -> None:
        super().__init__()
        assert fallback is None or (tree.is_chain and not sample), "the plan refuses other drafts that stop early"
        self.decoder, self.shape, self.fallback, self.prefix = decoder, tree, fallback, prefix
        self.tokens = tree.drafts
        self.keeps_drafts = tree.is_chain and not merged
        self.catch_up = 2 if self.keeps_drafts else tree.depth + 1
        self.candidates = min(CANDIDATES, decoder.model.config.vocab_size) if sample else 0

    def states(self) -> list[State]:
        return cache_states(self.decoder, self.prefix)

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        reading = Reading(self.decoder, accepted, states)
        children = Drawn(accepted, self.candidates) if self.candidates else Best()
        drafts, confidence = list[Tensor](), list[Tensor]()
        for level in levels(self.shape):
            logits = self._read(reading, drafts[-1], level) if drafts else reading.logits
            if self.fallback is not None:
                confidence.append(torch.softmax(logits, -1).amax(-1))
            drafts.append(children.choose(logits, level, drafts))

        window = torch.cat([reading.bonus, *drafts], 1)
        n_drafts = self._n_sure(torch.cat(confidence, 1)) if confidence else self.tokens
        n_total = torch.where(accepted.n_path > 0, 1 + n_drafts, 1)  # no constant: engines bind every output's memory
        drafted = Drafted(window, n_total, reading.commit_drafts() if self.keeps_drafts else reading.commit())
        if isinstance(children, Drawn):
            ids, probs = children.table(self.tokens)
            drafted = drafted._replace(ids=ids, probs=probs)
        return drafted

    def _read(self, reading: Reading, drafts: Tensor, level: Level) -> Tensor:
        """Logits float32 [B, T, V] after the level's nodes, which are some or all of the drafts int64 [B, n]."""
        tree = self.shape
        depth = tree.depths[level.nodes[0]]
        inner = [node for node, its in enumerate(tree.children) if its and 0 < tree.depths[node] <= depth]
        ancestors = [[other in tree.lineages[node] for other in inner] for node in level.nodes]
        if len(level.nodes) < drafts.shape[1]:
            first = tree.depths.index(depth)
            drafts = drafts.index_select(1, torch.tensor([node - first for node in level.nodes]))
        return reading.read(drafts, depth, torch.tensor([ancestors] * drafts.shape[0]))

    def _n_sure(self, confidence: Tensor) -> Tensor:
        """confidence float32 [B, N] of each draft -> int64 [B]: how many come before the first unsure one."""
        return ((confidence < self.fallback).long().cumsum(1) == 0).long().sum(1)
