"""Copies what most often followed the longest suffixes (SuffixDecoding, Oliaro et al. 2024; ANPD, Ou et al. 2024)."""

from speccompile.drafters.family import Family, Tried, certain
from speccompile.drafters.suffix.deciding import decide

FAMILY = Family(
    "suffix",
    "votes of all earlier occurrences of the last tokens, in the text and in earlier answers",
    ("tokens", "tree", "match", "factor", "offset", "threshold", "look_again", "remember"),
    (
        certain(("chain", "dynamic"), ("exact",)),
        certain(("chain",), ("typical", "top_k")),
        certain(("chain",), ("lenience",)),
    ),
    threshold=0.1,  # SuffixDecoding's
    decide=decide,
    elsewhere="which is a drafter of its own and does not look up for another one yet",
    tried=(
        Tried("suffix-8", {"tokens": 8}),
        Tried("suffix-tree", {"tree": {"depth": 8, "top_k": 2, "nodes": 12}}),
        Tried("suffix-answers", {"tokens": 8, "remember": 4096}),
    ),
)
