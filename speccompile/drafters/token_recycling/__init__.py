"""Token Recycling: drafts from the target's earlier predictions after every token (Luo et al. 2024, 2408.08696)."""

from speccompile.drafters.method import (
    NO_RUN,
    STATIC_TREE_KINDS,
    CompareVariant,
    DefaultTree,
    DraftingMethod,
    greedy_draft_row,
)
from speccompile.drafters.token_recycling.nodes import NODES, best_first

METHOD = DraftingMethod(
    "token_recycling",
    "what the target held for likely behind the same token, wherever it read it last",
    ("tokens", "tree", "nodes", "top_k"),
    # The output of approximate verification depends on the drafts, and the drafts on all texts in the table.
    (greedy_draft_row(STATIC_TREE_KINDS, ("exact",)),),
    default_tree=DefaultTree(NODES, 8, best_first),
    tune_sizes=tuple({"nodes": nodes} for nodes in (8, 12, 16, 24, 40)),
    compare_variants=(CompareVariant("token_recycling-24", {"nodes": 24}),),
    runs=NO_RUN,
    with_images=True,
    reads_sources=True,
)
