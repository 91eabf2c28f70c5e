"""Prompt lookup: copies from the text (Saxena 2023; LLMA, Yang et al. 2023)."""

from speccompile.drafters.method import NO_RUN, STATIC_TREE_KINDS, CompareVariant, DraftingMethod, greedy_draft_row

METHOD = DraftingMethod(
    "prompt_lookup",
    "copies what followed the last tokens where they stood before",
    ("tokens", "ngram", "tree"),
    (
        greedy_draft_row(STATIC_TREE_KINDS, ("exact",)),
        greedy_draft_row(STATIC_TREE_KINDS, ("typical", "top_k")),
        greedy_draft_row(("chain",), ("lenience",)),
    ),
    looks_up=True,
    aliases=("ngram", "lookup", "prompt_lookup_decoding"),
    compare_variants=(
        CompareVariant("prompt_lookup-4", {"tokens": 4}),
        CompareVariant("prompt_lookup-10", {"tokens": 10}),
        CompareVariant("prompt_lookup-tree", {"tree": [2, 1, 1, 1]}),
    ),
    runs=NO_RUN,
    reads_sources=True,
)
