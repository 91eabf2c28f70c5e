"""Which nodes of the tree are worth a row of the window: the template of Token Recycling, pruned best first."""

from speccompile.tree import Tree, TreeError, from_children, from_paths

TEMPLATE = from_children(
    [8],
    [8, 4, 3, 2, 1, 1, 1, 1],
    [8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1],
    [5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1],
    [3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1],
    [2, 0, 0, 1],
)
"""Token Recycling's tree of 80 nodes (Luo et al. 2024)."""

NODES = 8
"""Where the recipe does not say. Measured on the demo on a CPU, greedy, in float32: a window of 9 takes 1.6 times a
single token's time and accepts 3.3 a round, one of 25 takes 2.8 times as long and accepts 3.7. A GPU has use for all
80."""

HITS = (0.6, 0.06, 0.03, 0.02, 0.015, 0.012, 0.01, 0.008)
"""How often the next token is the one that the table has at each rank. Measured on the demo: 0.74, 0.04, 0.02, .. in
greedy decoding, 0.24, 0.06, 0.03, .. at temperature 1. Between the two, nearer to where it pays."""


def best_first(nodes: int, top_k: int) -> Tree:
    """The `nodes` nodes of the template that are most often right, of those whose ranks a table of `top_k` columns has.

    A node is right as often as all ranks on its way are, so a node never comes before its parent or a better sibling.
    Raises TreeError where the template has fewer.
    """
    known = [path for path in TEMPLATE.paths() if max(path) < top_k]
    if nodes > len(known):
        raise TreeError(
            f"received {nodes} nodes where the {top_k} best tokens behind each are known, expected at most {len(known)}"
        )
    return from_paths(sorted(known, key=_hits, reverse=True)[:nodes])


def _hits(path: list[int]) -> float:
    product = 1.0
    for rank in sorted(path):  # so that equal products are equal numbers
        product *= HITS[rank]
    return product
