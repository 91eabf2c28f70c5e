"""Suffix drafting: copies the most frequent continuations of the longest suffixes (SuffixDecoding, Oliaro et al. 2024;
ANPD, Ou et al. 2024)."""

from speccompile.drafters.method import NO_RUN, CompareVariant, DraftingMethod, greedy_draft_row
from speccompile.drafters.suffix.deciding import decide

METHOD = DraftingMethod(
    "suffix",
    "votes of all earlier occurrences of the last tokens, in the text and in earlier answers",
    ("tokens", "tree", "match", "factor", "offset", "threshold", "look_again", "remember"),
    (
        greedy_draft_row(("chain", "dynamic"), ("exact",)),
        greedy_draft_row(("chain",), ("typical", "top_k")),
        greedy_draft_row(("chain",), ("lenience",)),
    ),
    threshold=0.1,  # SuffixDecoding's
    decide=decide,
    with_images=True,
    elsewhere="which is a drafter of its own and does not look up for another one yet",
    compare_variants=(
        CompareVariant("suffix-8", {"tokens": 8}),
        CompareVariant("suffix-tree", {"tree": {"depth": 8, "top_k": 2, "nodes": 12}}),
        CompareVariant("suffix-answers", {"tokens": 8, "remember": 4096}),
    ),
    runs=NO_RUN,
    reads_sources=True,
)
