"""Layout of a window: a chain, or a tree that begins at the last given token.

Node 0 of a tree is the last given token, its other nodes are the drafts: node k stands at window position
n_given - 1 + k. The given tokens precede it in a chain; padding follows the last draft.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.tree import Tree


class Layout(NamedTuple):
    """Positions and visibility of a window's tokens. positions int64 [B, W]; visible bool [B, W, W]: the tokens that
    each token sees."""

    positions: Tensor
    visible: Tensor


class TreeNodes(NamedTuple):
    """A tree for every batch slot. parents, depths int64 [B, M]; ancestors float32 [B, M, M], one if node j is node i
    or an ancestor of it. The root is its own parent."""

    parents: Tensor
    depths: Tensor
    ancestors: Tensor


class Branches(NamedTuple):
    """Paths of a tree, as orders of the window's tokens, for recurrent states: from its root to each
    leaf, or to each node where leaves differ from round to round. orders int64 [B, P, W]: the given tokens, then those
    of a path; what follows a path belongs to no node. places int64 [B, W]: where each token stands among the P * W of
    all paths."""

    orders: Tensor
    places: Tensor

    def spread(self, rows: Tensor) -> Tensor:
        """Return rows [B, G, W, D] of every path as rows of a batch slot of its own: [B * P, G, W, D]."""
        batch, paths, width = self.orders.shape
        index = self.orders.reshape(batch, 1, paths * width, 1).expand(-1, rows.shape[1], -1, rows.shape[3])
        of_paths = rows.gather(2, index).unflatten(2, (paths, width))
        return of_paths.transpose(1, 2).flatten(0, 1)

    def repeated(self, state: Tensor) -> Tensor:
        """Return what every path begins with, [B * P, ..] of [B, ..]."""
        return state.repeat_interleave(self.orders.shape[1], 0)

    def joined(self, rows: Tensor) -> Tensor:
        """Return the row of every token, [B, H, W, V], of rows [B * P, H, W, V] as `spread` orders them."""
        batch, paths, _ = self.orders.shape
        of_paths = rows.unflatten(0, (batch, paths)).transpose(1, 2).flatten(2, 3)
        index = self.places[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3])
        return of_paths.gather(2, index)


class AcceptedPath(NamedTuple):
    """The accepted path. n_accepted int64 [B]: drafts on it; last int64 [B]: the node at which it ends.

    order int64 [B, W]: window positions, those of the path first; None if the window is already in this order. nodes
    int64 [B, D + 1]: the path's node at every depth; None for a chain, where a node's number is its depth.
    """

    n_accepted: Tensor
    last: Tensor
    order: Tensor | None
    nodes: Tensor | None


class ChainLayout(nn.Module):
    """A chain of any length."""

    def layout(self, window: Tensor, n_given: Tensor, length: Tensor, nodes: TreeNodes | None) -> Layout:
        places = torch.arange(window.shape[1], device=window.device)
        visible = (places[None, :] <= places[:, None]).expand(window.shape[0], -1, -1)
        return Layout(length[:, None] + places, visible)

    def nodes(self, parents: Tensor | None, batch: int) -> None:
        return None

    def branches(self, window: Tensor, n_given: Tensor, nodes: TreeNodes | None) -> None:
        """Return None, for no branches: every token follows the one before it."""

    def walk(self, accepted: Tensor, window: Tensor, n_given: Tensor, nodes: TreeNodes | None) -> AcceptedPath:
        """Return the accepted path. accepted bool [B, P]: whether draft 1 .. P may follow the node before it."""
        n_accepted = ((~accepted).long().cumsum(1) == 0).long().sum(1)
        return AcceptedPath(n_accepted, n_accepted, None, None)


class TreeLayout(nn.Module):
    """A tree: constant, or with parents from the drafter. `size`: number of nodes, M; `depth`: depth of the deepest
    node."""

    def __init__(self, tree: Tree | None, size: int, depth: int) -> None:
        super().__init__()
        self.size, self.depth = size, depth
        self.is_constant = tree is not None
        if tree is not None:
            self.register_buffer("parents", torch.tensor([0, *tree.parents[1:]]), persistent=False)
            self.register_buffer("depths", torch.tensor(tree.depths), persistent=False)
            self.register_buffer("ancestors", torch.tensor(tree.ancestors()).float(), persistent=False)
            leaves = [path for path, children in zip(tree.root_paths, tree.children, strict=True) if not children]
            whole = [[*path, *[path[-1]] * (depth + 1 - len(path))] for path in leaves]
            home = [next(i for i, path in enumerate(leaves) if node in path) for node in range(size)]
            self.register_buffer("leaf_paths", torch.tensor(whole), persistent=False)
            self.register_buffer("home", torch.tensor(home), persistent=False)

    def nodes(self, parents: Tensor | None, batch: int) -> TreeNodes:
        """Return the tree of every batch slot. parents int64 [B, M]: given if the tree is not constant."""
        if self.is_constant:
            constants = (self.parents, self.depths, self.ancestors)
            return TreeNodes(*(each[None].expand(batch, *[-1] * each.dim()) for each in constants))
        assert parents is not None
        parents = parents.clamp(0, self.size - 1)
        own = torch.arange(self.size, device=parents.device)
        reached = ((own == parents[:, :, None]) | (own == own[:, None])).float()
        for _ in range((self.depth - 1).bit_length()):  # each iteration doubles the reach
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

    def branches(self, window: Tensor, n_given: Tensor, nodes: TreeNodes | None) -> Branches:
        """Return the paths of the tree of every batch slot."""
        assert nodes is not None
        width, batch = window.shape[1], window.shape[0]
        places = torch.arange(width, device=window.device)
        root = n_given[:, None] - 1
        behind = places - root  # [B, W]: depth of a path's token at this position
        node = self._node_at(places, n_given)
        paths, home = self._paths(nodes)
        paths = paths.gather(2, behind.clamp(0, self.depth)[:, None].expand(-1, paths.shape[1], -1))  # [B, P, W]
        is_draft = (behind > 0) & (behind <= self.depth)
        orders = torch.where(is_draft[:, None], root[:, None] + paths, places).clamp(0, width - 1)
        own = torch.where(node > 0, root + nodes.depths.gather(1, node), places).clamp(0, width - 1)
        return Branches(orders, home.expand(batch, -1).gather(1, node) * width + own)

    def _paths(self, nodes: TreeNodes) -> tuple[Tensor, Tensor]:
        """Return the node of every path at every depth, its last one where it ends before, int64 [B, P, D + 1], and a
        path on which each node lies, [1, M]."""
        if self.is_constant:
            return self.leaf_paths.expand(nodes.depths.shape[0], -1, -1), self.home[None]
        own = torch.arange(self.size, device=nodes.depths.device)
        lineage = nodes.ancestors[:, 1:, None] > 0  # [B, M - 1, 1, M]
        at_depth = torch.arange(self.depth + 1, device=own.device)[:, None] == nodes.depths[:, None, :]  # [B, D + 1, M]
        found = (own * (at_depth[:, None] & lineage).long()).sum(3)
        ended = torch.arange(self.depth + 1, device=own.device) > nodes.depths[:, 1:, None]
        return torch.where(ended, own[1:, None], found), (own - 1).clamp(min=0)[None]

    def walk(self, accepted: Tensor, window: Tensor, n_given: Tensor, nodes: TreeNodes | None) -> AcceptedPath:
        """Return the longest path of accepted nodes, the first one among equals. accepted bool [B, M]: whether each
        node may follow its parent."""
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
        behind = places - (n_given[:, None] - 1)  # [B, W]: depth of the path's token at this position
        along = n_given[:, None] - 1 + path.gather(1, behind.clamp(0, self.depth))
        order = torch.where((behind > 0) & (behind <= n_accepted[:, None]), along, places)
        return AcceptedPath(n_accepted, last, order.clamp(0, window.shape[1] - 1), path)

    def _node_at(self, places: Tensor, n_given: Tensor) -> Tensor:
        """Return int64 [B, W]: the node at each position of the window, 0 for all given tokens."""
        return (places - (n_given[:, None] - 1)).clamp(0, self.size - 1)


Shape = ChainLayout | TreeLayout
"""Layout of a window's tokens."""
