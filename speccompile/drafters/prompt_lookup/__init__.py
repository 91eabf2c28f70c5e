"""Copies from the text (Saxena 2023; LLMA, Yang et al. 2023)."""

from speccompile.drafters.family import FIXED, Family, certain

FAMILY = Family(
    "prompt_lookup",
    "copies what followed the last tokens where they stood before",
    ("tokens", "ngram", "tree"),
    (certain(FIXED, ("exact",)), certain(FIXED, ("typical", "top_k")), certain(("chain",), ("lenience",))),
)
