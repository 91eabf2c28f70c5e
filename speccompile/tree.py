"""Token trees: parents -> depths, ranks, ancestors, paths. Standard library only.

Node 0 is the root: the last certain token of a window. All other nodes are drafts, each after its parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

ROOT = -1
"""Parent of the root in a list of parents."""


MOST_DEPTH = 16
"""Maximum depth of drafts that a recipe may request."""


class TreeError(ValueError):
    """Input that is no tree. The message says what was received and what was expected."""


@dataclass(frozen=True)
class Tree:
    """A tree of drafts: `parents[i]` is the node that node i follows, `parents[0]` is -1.

    Nodes are ordered by depth, siblings by rank: the best child of a node first. Raises TreeError for anything else.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(self.parents)

    @property
    def drafts(self) -> int:
        """Number of nodes except the root."""
        return len(self.parents) - 1

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of every node: steps from the root."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Return the length of the longest path below the root."""
        return self.depths[-1]

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Return the children of every node, the best first."""
        found: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], 1):
            found[parent].append(node)
        return tuple(map(tuple, found))

    @property
    def branching(self) -> int:
        """Return the maximum number of children of a node."""
        return max(map(len, self.children))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Rank of every node among its siblings, 0 for the best; 0 for the root."""
        ranks = [0] * len(self.parents)
        for siblings in self.children:
            for rank, node in enumerate(siblings):
                ranks[node] = rank
        return tuple(ranks)

    @cached_property
    def root_paths(self) -> tuple[tuple[int, ...], ...]:
        """Path of every node: the root, .., its parent, itself."""
        lineages: list[tuple[int, ...]] = [(0,)]
        for node, parent in enumerate(self.parents[1:], 1):
            lineages.append((*lineages[parent], node))
        return tuple(lineages)

    @property
    def is_chain(self) -> bool:
        return self.branching <= 1

    def ancestors(self) -> list[list[bool]]:
        """Return [i][j]: whether node j is node i or lies on its path to the root."""
        return [[j in lineage for j in range(len(self.parents))] for lineage in map(set, self.root_paths)]

    def paths(self) -> list[list[int]]:
        """Return the ranks that lead to every draft: the argument of `from_paths`."""
        return [[self.ranks[node] for node in lineage[1:]] for lineage in self.root_paths[1:]]


def chain(drafts: int) -> Tree:
    """Return a tree of one branch."""
    return Tree(tuple(range(ROOT, drafts)))


def from_branching(factors: Sequence[int]) -> Tree:
    """Return a tree whose nodes at depth d have factors[d] children each."""
    wrong = next((factor for factor in factors if factor < 1), None)
    if not factors or wrong is not None:
        received = "no branching factor" if wrong is None else f"a branching factor of {wrong}"
        raise TreeError(f"received {received}, expected one from 1 on for every depth")
    parents, level = [ROOT], [0]
    for factor in factors:
        start = len(parents)
        parents += [node for node in level for _ in range(factor)]
        level = list(range(start, len(parents)))
    return Tree(tuple(parents))


def from_children(*counts: Sequence[int]) -> Tree:
    """Return a tree. counts: the number of children of each node, depth by depth; nodes beyond the list have none."""
    parents, level = [ROOT], [0]
    for each in counts:
        start = len(parents)
        parents += [node for node, count in zip(level, each, strict=False) for _ in range(count)]
        level = list(range(start, len(parents)))
    return Tree(tuple(parents))


def from_paths(paths: Sequence[Sequence[int]]) -> Tree:
    """Return the tree of Medusa's notation: [0, 2] is the third best token after the best one. Paths come in any
    order."""
    if not paths or not all(paths):
        raise TreeError("received an empty path or no path, expected paths of one rank or more")
    places: dict[tuple[int, ...], int] = {(): 0}
    parents = [ROOT]
    for path in sorted(map(tuple, paths), key=lambda path: (len(path), path)):
        if path in places:
            raise TreeError(f"received the path {list(path)} twice, expected every node once")
        if min(path) < 0:
            raise TreeError(f"received the path {list(path)}, expected ranks from 0 on")
        if path[:-1] not in places:
            raise TreeError(f"received the path {list(path)} without {list(path[:-1])}, expected its parent as well")
        elder = (*path[:-1], path[-1] - 1)
        if path[-1] and elder not in places:
            raise TreeError(f"received the path {list(path)} without {list(elder)}, expected the better token as well")
        places[path] = len(parents)
        parents.append(places[path[:-1]])
    return Tree(tuple(parents))


def from_parents(parents: Sequence[int]) -> Tree:
    """Return the tree of any list of parents, with its nodes in any order: -1 marks the root."""
    roots = [node for node, parent in enumerate(parents) if parent == ROOT]
    if len(roots) != 1:
        raise TreeError(f"received {len(roots)} roots, expected one node whose parent is -1")
    wrong = next((node for node, parent in enumerate(parents) if not ROOT <= parent < len(parents)), None)
    if wrong is not None:
        expected = f"one of the nodes 0 to {len(parents) - 1}"
        raise TreeError(f"received node {wrong} with parent {parents[wrong]}, expected {expected}")
    places, level, ordered = {roots[0]: 0}, roots, [ROOT]
    while level:
        level = [node for parent in level for node, its in enumerate(parents) if its == parent]
        for node in level:
            places[node] = len(ordered)
            ordered.append(places[parents[node]])
    if len(ordered) < len(parents):
        lost = next(node for node in range(len(parents)) if node not in places)
        raise TreeError(f"received a cycle: node {lost} never comes to the root, expected a way to it from every node")
    return Tree(tuple(ordered))


def merged(trees: Sequence[Tree]) -> Tree:
    """Return trees merged under one root: at every depth the first tree's branches precede the second's (SpecInfer)."""
    return from_parents(_joined(trees))


def merged_indices(trees: Sequence[Tree]) -> list[list[int]]:
    """Return the node in `merged` for every draft of every tree, without its root."""
    keyed = sorted(
        ((tree.depths[node], number, node) for number, tree in enumerate(trees) for node in range(1, tree.drafts + 1))
    )
    place = {(number, node): index for index, (_, number, node) in enumerate(keyed, 1)}
    return [[place[number, node] for node in range(1, tree.drafts + 1)] for number, tree in enumerate(trees)]


def _joined(trees: Sequence[Tree]) -> list[int]:
    joined = [ROOT]
    for tree in trees:
        start = len(joined) - 1
        joined += [parent + start if parent else 0 for parent in tree.parents[1:]]
    return joined


def _check(parents: Sequence[int]) -> None:
    if not parents or parents[0] != ROOT:
        raise TreeError(f"received {list(parents)[:1]} as the first parent, expected -1, which marks the root")
    for node, parent in enumerate(parents[1:], 1):
        if not 0 <= parent < node:
            raise TreeError(f"received node {node} with parent {parent}, expected one of the nodes before it")
        if parent < parents[node - 1]:  # which also puts a depth before the next
            raise TreeError(f"received node {node} out of order, expected nodes by depth and by parent")


MEDUSA_63 = from_paths(
    [[0], [0, 0], [1], [0, 1], [2], [0, 0, 0], [1, 0], [0, 2], [3], [0, 3], [4], [0, 4], [2, 0], [0, 5], [0, 0, 1],
     [5], [0, 6], [6], [0, 7], [0, 1, 0], [1, 1], [7], [0, 8], [0, 0, 2], [3, 0], [0, 9], [8], [9], [1, 0, 0],
     [0, 2, 0], [1, 2], [0, 0, 3], [4, 0], [2, 1], [0, 0, 4], [0, 0, 5], [0, 0, 0, 0], [0, 1, 1], [0, 0, 6],
     [0, 3, 0], [5, 0], [1, 3], [0, 0, 7], [0, 0, 8], [0, 0, 9], [6, 0], [0, 4, 0], [1, 4], [7, 0], [0, 1, 2],
     [2, 0, 0], [3, 1], [2, 2], [8, 0], [0, 5, 0], [1, 5], [1, 0, 1], [0, 2, 1], [9, 0], [0, 6, 0], [0, 0, 0, 1],
     [1, 6], [0, 7, 0]]
)  # fmt: skip
"""Medusa's tree for its 7 B models (Cai et al. 2024)."""

EAGLE_25 = from_paths(
    [[0], [1], [2], [3], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [0, 0, 0], [0, 0, 1],
     [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 2, 0], [0, 2, 1], [1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2],
     [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
)  # fmt: skip
"""EAGLE-1's tree (Li et al. 2024)."""

NAMED = {"medusa-63": MEDUSA_63, "eagle-25": EAGLE_25}
