"""Default trees of Token Recycling: its template, pruned to the nodes that are most often right."""

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
"""Default number of nodes. Measured with the demo on a CPU, greedy, in float32: a window of 9 takes 1.6 times a single
token's time and accepts 3.3 tokens per round; one of 25 takes 2.8 times as long and accepts 3.7. On a GPU, all 80
pay."""

HITS = (0.6, 0.06, 0.03, 0.02, 0.015, 0.012, 0.01, 0.008)
"""Probability that the next token is the table's entry at each rank. Measured with the demo: 0.74, 0.04, 0.02, .. in
greedy decoding, 0.24, 0.06, 0.03, .. at temperature 1. The values lie between, nearer to greedy, where it pays."""


def best_first(nodes: int, top_k: int) -> Tree:
    """Return the tree of the `nodes` most probable nodes of the template with ranks below `top_k`.

    The probability of a node is the product over the ranks on its path, so a node never comes before its parent or a
    better sibling. Raise TreeError if the template has fewer such nodes.
    """
    known = [path for path in TEMPLATE.paths() if max(path) < top_k]
    if nodes > len(known):
        raise TreeError(
            f"received {nodes} nodes where the {top_k} best tokens behind each are known, expected at most {len(known)}"
        )
    return from_paths(sorted(known, key=_hits, reverse=True)[:nodes])


def _hits(path: list[int]) -> float:
    product = 1.0
    for rank in sorted(path):  # sorted, so that products of the same ranks are equal floats
        product *= HITS[rank]
    return product
