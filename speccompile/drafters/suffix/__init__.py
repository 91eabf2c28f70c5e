"""Copies what most often followed the longest suffixes (SuffixDecoding, Oliaro et al. 2024; ANPD, Ou et al. 2024)."""

from speccompile.drafters.family import Family, certain

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
)
