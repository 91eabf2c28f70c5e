"""Jacobi decoding (Santilli et al. 2023): the target's predictions after rejected drafts are the next drafts."""

from speccompile.drafters.method import GREEDY_CHAIN_ROWS, CompareVariant, DraftingMethod

METHOD = DraftingMethod(
    "jacobi",
    "Jacobi: what the target said behind the drafts that it refused",
    ("tokens", "tree"),
    GREEDY_CHAIN_ROWS,
    target_top_k=1,
    compare_variants=(CompareVariant("jacobi-4", {"tokens": 4}),),
    reads_sources=True,
)
