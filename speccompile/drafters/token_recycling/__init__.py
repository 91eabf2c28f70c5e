"""Drafts from what the target itself said of every token it read (Token Recycling, Luo et al. 2024, 2408.08696)."""

from speccompile.drafters.family import FIXED, Family, OwnTree, Tried, certain
from speccompile.drafters.token_recycling.nodes import NODES, best_first

FAMILY = Family(
    "token_recycling",
    "what the target held for likely behind the same token, wherever it read it last",
    ("tokens", "tree", "nodes", "top_k"),
    # What an approximate method accepts depends on what is drafted, and that on everything that the table has seen.
    (certain(FIXED, ("exact",)),),
    own_tree=OwnTree(NODES, 8, best_first),
    sizes=tuple({"nodes": nodes} for nodes in (8, 12, 16, 24, 40)),
    tried=(Tried("token_recycling-24", {"nodes": 24}),),
)
