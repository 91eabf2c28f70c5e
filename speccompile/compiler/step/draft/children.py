"""Children of nodes in a constant tree, from the logits after the nodes: the best tokens, or sampled ones."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.vocabulary import Vocabulary
from speccompile.compiler.step.sampling import apply_temperature_and_penalty, candidates, draw_candidate
from speccompile.tree import Tree


@dataclass(frozen=True)
class TreeLevel:
    """The nodes at one depth that have children. All their children together are the next depth's nodes, in order."""

    tree: Tree
    nodes: tuple[int, ...]

    @property
    def branching(self) -> int:
        """Return the largest number of children of one of the nodes."""
        return max(len(self.tree.children[node]) for node in self.nodes)

    def for_each(self, found: Tensor) -> Tensor:
        """Expand [B, T, ..], or [B, 1, ..] if it is the same for all nodes, to [B, T, ..]."""
        nodes = len(self.nodes)
        return found if found.shape[1] == nodes else found.expand(-1, nodes, *found.shape[2:])

    def pick(self, ranked: Tensor) -> Tensor:
        """Return the children's tokens, int64 [B, n]. ranked int64 [B, T, branching]: the best token after each node
        first."""
        width = self.branching
        kept = [t * width + rank for t, node in enumerate(self.nodes) for rank in range(len(self.tree.children[node]))]
        flat = ranked.flatten(1)
        return flat if len(kept) == len(self.nodes) * width else flat.index_select(1, torch.tensor(kept))


def levels(tree: Tree) -> list[TreeLevel]:
    """Return the nodes that have children, depth by depth, the root first."""
    inner = [node for node, children in enumerate(tree.children) if children]
    return [TreeLevel(tree, tuple(n for n in inner if tree.depths[n] == depth)) for depth in range(tree.depth)]


class GreedyChildren:
    """Children are the tokens with the highest logits: deterministic drafts."""

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        """vocabulary: of the logits, None for the target's own."""
        self.vocabulary = vocabulary

    def choose(self, logits: Tensor, level: TreeLevel, drafts: list[Tensor]) -> Tensor:
        """Return the children of the level's nodes, int64 [B, n], as the target's tokens. logits float32 [B, T, V]
        after the nodes, or [B, 1, V] if they are the same after all of them.

        drafts: int64 [B, n] at depth 1, 2, .., as far as they are chosen.
        """
        width = level.branching
        if width == 1:
            chosen = level.for_each(logits.argmax(-1))
        else:
            chosen = level.pick(level.for_each(logits.topk(width, dim=2).indices))
        return chosen if self.vocabulary is None else self.vocabulary.of_target(chosen)


class SampledChildren:
    """Children are drawn without replacement among the `count` best tokens after a node, under the host's settings.

    With temperature 0 they are the best ones. If nothing is left to draw, the best token is drawn again: it was drawn
    before, and verification rejects it again if it rejected it before.
    """

    def __init__(self, accepted: Accepted, count: int, vocabulary: Vocabulary | None = None) -> None:
        """vocabulary: as in `GreedyChildren`. Tokens seen before are penalized if the drafter has them."""
        assert accepted.settings is not None, "a drafter that samples is told how"
        assert accepted.uniforms is not None, "a drafter that samples is given random numbers"
        self.settings, self.uniforms, self.count = accepted.settings, accepted.uniforms, count
        self.vocabulary = vocabulary
        # The path is undefined after the bonus token: the bonus token is repeated there.
        places = accepted.n_path[:, None].minimum(torch.arange(accepted.path.shape[1], device=accepted.path.device))
        self.seen = torch.cat([accepted.settings.history, accepted.path.gather(1, places)], 1)
        self.nodes: list[int] = []
        self.ids: list[Tensor] = []
        self.probs: list[Tensor] = []

    def choose(self, logits: Tensor, level: TreeLevel, drafts: list[Tensor]) -> Tensor:
        """See `GreedyChildren.choose`."""
        heated = self._scaled_logits(level.for_each(logits), self._seen(level, drafts))
        ids, probs = candidates(heated, self.count, self.settings)
        if self.vocabulary is not None:
            ids = self.vocabulary.of_target(ids)
        self.nodes += level.nodes
        self.ids.append(ids)
        self.probs.append(probs)
        return level.pick(ids.gather(2, self._draw(probs, level)))

    def _scaled_logits(self, logits: Tensor, seen: Tensor) -> Tensor:
        """Apply temperature and penalty to logits over the drafter's vocabulary."""
        if self.vocabulary is None:
            return apply_temperature_and_penalty(logits, self.settings, seen)
        # An additional column takes the penalties of tokens that the drafter does not have.
        return apply_temperature_and_penalty(pad(logits, (0, 1)), self.settings, self.vocabulary.of_drafts(seen))[
            :, :, :-1
        ]

    def _seen(self, level: TreeLevel, drafts: list[Tensor]) -> Tensor:
        """Return int64 [B, T, H]: the tokens before the children of each node."""
        seen = self.seen[:, None, :].expand(-1, len(level.nodes), -1)
        if not drafts:
            return seen
        before = [node - 1 for parent in level.nodes for node in level.tree.root_paths[parent][1:]]
        own = torch.cat(drafts, 1).index_select(1, torch.tensor(before))
        return torch.cat([seen, own.view(own.shape[0], len(level.nodes), -1)], 2)

    def _draw(self, weights: Tensor, level: TreeLevel) -> Tensor:
        """Draw int64 [B, T, branching]: the candidate of each child. weights float32 [B, T, C]."""
        greedy = self.settings.temperature[:, None] <= 0
        chosen = []
        for rank in range(level.branching):
            children = [level.tree.children[node] for node in level.nodes]
            # A node without such a child draws as well: its draw is not picked.
            source = torch.tensor([its[rank] - 1 if rank < len(its) else 0 for its in children])
            index = draw_candidate(weights, self.uniforms.index_select(1, source))
            chosen.append(torch.where(greedy, rank, index))
            if rank + 1 < level.branching:
                places = torch.arange(self.count, device=weights.device)
                weights = torch.where(places == chosen[-1][:, :, None], 0.0, weights)
        return torch.stack(chosen, 2)

    def table(self, drafts: int) -> tuple[Tensor, Tensor]:
        """Return ids int64 and probs float32 [B, N, C] of nodes 0 .. N - 1; zeros for a node without children."""
        ids, probs = torch.cat(self.ids, 1), torch.cat(self.probs, 1)
        if len(self.nodes) == drafts:
            return ids, probs
        places = {node: index for index, node in enumerate(self.nodes)}
        index = torch.tensor([places.get(node, len(places)) for node in range(drafts)])
        ids, probs = (torch.cat([x, torch.zeros_like(x[:, :1])], 1).index_select(1, index) for x in (ids, probs))
        return ids, probs
