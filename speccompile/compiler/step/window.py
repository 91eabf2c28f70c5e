"""How the tokens of a window follow each other: in a chain, or from the last given token on in a tree.

Node 0 of a tree is the last given token, its other nodes are the drafts: node k stands at window position
n_given - 1 + k. Before it lie the given tokens, in a chain; behind the last draft, padding.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.tree import Tree


class Layout(NamedTuple):
    """Where a window's tokens stand. positions int64 [B, W]; visible bool [B, W, W]: which ones each of them sees."""

    positions: Tensor
    visible: Tensor


class TreeNodes(NamedTuple):
    """A tree in every row. parents, depths int64 [B, M]; ancestors float32 [B, M, M], one where node j is node i or
    lies on its way to the root. The root is its own parent."""

    parents: Tensor
    depths: Tensor
    ancestors: Tensor


class AcceptedPath(NamedTuple):
    """The accepted path. n_accepted int64 [B]: drafts on it; last int64 [B]: the node at which it ends.

    order int64 [B, W]: window positions, those of the path in front; None where they lie there as they are. nodes int64
    [B, D + 1]: the path's node at every depth; None for a chain, where a node's number is its depth.
    """

    n_accepted: Tensor
    last: Tensor
    order: Tensor | None
    nodes: Tensor | None


class ChainLayout(nn.Module):
    """One branch, of any length."""

    def layout(self, window: Tensor, n_given: Tensor, length: Tensor, nodes: TreeNodes | None) -> Layout:
        places = torch.arange(window.shape[1], device=window.device)
        visible = (places[None, :] <= places[:, None]).expand(window.shape[0], -1, -1)
        return Layout(length[:, None] + places, visible)

    def nodes(self, parents: Tensor | None, batch: int) -> None:
        return None

    def walk(self, accepted: Tensor, window: Tensor, n_given: Tensor, nodes: TreeNodes | None) -> AcceptedPath:
        """accepted bool [B, P]: whether draft 1 .. P may follow the node before it."""
        n_accepted = ((~accepted).long().cumsum(1) == 0).long().sum(1)
        return AcceptedPath(n_accepted, n_accepted, None, None)


class TreeLayout(nn.Module):
    """A tree: constant, or with the parents that the drafter gives. `size`: its nodes, M; `depth`: of the deepest."""

    def __init__(self, tree: Tree | None, size: int, depth: int) -> None:
        super().__init__()
        self.size, self.depth = size, depth
        self.is_constant = tree is not None
        if tree is not None:
            self.register_buffer("parents", torch.tensor([0, *tree.parents[1:]]), persistent=False)
            self.register_buffer("depths", torch.tensor(tree.depths), persistent=False)
            self.register_buffer("ancestors", torch.tensor(tree.ancestors()).float(), persistent=False)

    def nodes(self, parents: Tensor | None, batch: int) -> TreeNodes:
        """The tree of every row; parents int64 [B, M], where it is not constant."""
        if self.is_constant:
            constants = (self.parents, self.depths, self.ancestors)
            return TreeNodes(*(each[None].expand(batch, *[-1] * each.dim()) for each in constants))
        assert parents is not None
        parents = parents.clamp(0, self.size - 1)
        own = torch.arange(self.size, device=parents.device)
        reached = ((own == parents[:, :, None]) | (own == own[:, None])).float()
        for _ in range((self.depth - 1).bit_length()):  # each time twice as far
            reached = (reached @ reached > 0).float()
        return TreeNodes(parents, reached.sum(2).long() - 1, reached)

    def layout(self, window: Tensor, n_given: Tensor, length: Tensor, nodes: TreeNodes | None) -> Layout:
        assert nodes is not None
        places = torch.arange(window.shape[1], device=window.device)
        node = self._node_at(places, n_given)  # [B, W]: 0 for the given
        behind = nodes.depths.gather(1, node)
        positions = length[:, None] + torch.where(node > 0, n_given[:, None] - 1 + behind, places)
        seen = nodes.ancestors.gather(1, node[:, :, None].expand(-1, -1, self.size))
        seen = seen.gather(2, node[:, None, :].expand(-1, node.shape[1], -1))
        return Layout(positions, (seen > 0) & (places[None, :] <= places[:, None]))

    def walk(self, accepted: Tensor, window: Tensor, n_given: Tensor, nodes: TreeNodes | None) -> AcceptedPath:
        """accepted bool [B, M]: whether each node may follow its parent. The longest path of such nodes, the first
        of several as long."""
        assert nodes is not None
        own = torch.arange(self.size, device=window.device)
        refused = ((~accepted) & (own > 0)).float()
        reached = (nodes.ancestors @ refused[:, :, None])[:, :, 0] == 0
        rank = torch.where(reached, nodes.depths * self.size + (self.size - 1 - own), -1)
        last = rank.argmax(1)
        n_accepted = nodes.depths.gather(1, last[:, None])[:, 0]

        lineage = nodes.ancestors.gather(1, last[:, None, None].expand(-1, 1, self.size)) > 0  # [B, 1, M]
        at_depth = torch.arange(self.depth + 1, device=window.device)[:, None] == nodes.depths[:, None, :]
        path = (own * (at_depth & lineage).long()).sum(2)  # [B, D + 1]

        places = torch.arange(window.shape[1], device=window.device)
        behind = places - (n_given[:, None] - 1)  # [B, W]: depth of the path's token at this place
        along = n_given[:, None] - 1 + path.gather(1, behind.clamp(0, self.depth))
        order = torch.where((behind > 0) & (behind <= n_accepted[:, None]), along, places)
        return AcceptedPath(n_accepted, last, order.clamp(0, window.shape[1] - 1), path)

    def _node_at(self, places: Tensor, n_given: Tensor) -> Tensor:
        """int64 [B, W]: the node at each place of the window, 0 for everything given."""
        return (places - (n_given[:, None] - 1)).clamp(0, self.size - 1)


Shape = ChainLayout | TreeLayout
"""How a window's tokens follow each other."""
