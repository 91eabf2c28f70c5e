"""Drafts from what the target itself said of every token it read (Token Recycling, Luo et al. 2024, 2408.08696)."""

from speccompile.drafters.method import STATIC_TREE_KINDS, CompareVariant, DefaultTree, DraftingMethod, greedy_draft_row
from speccompile.drafters.token_recycling.nodes import NODES, best_first

METHOD = DraftingMethod(
    "token_recycling",
    "what the target held for likely behind the same token, wherever it read it last",
    ("tokens", "tree", "nodes", "top_k"),
    # What an approximate method accepts depends on what is drafted, and that on everything that the table has seen.
    (greedy_draft_row(STATIC_TREE_KINDS, ("exact",)),),
    default_tree=DefaultTree(NODES, 8, best_first),
    tune_sizes=tuple({"nodes": nodes} for nodes in (8, 12, 16, 24, 40)),
    compare_variants=(CompareVariant("token_recycling-24", {"nodes": 24}),),
)
