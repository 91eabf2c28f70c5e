"""Copies from the text (Saxena 2023; LLMA, Yang et al. 2023)."""

from speccompile.drafters.family import FIXED, Family, Tried, certain

FAMILY = Family(
    "prompt_lookup",
    "copies what followed the last tokens where they stood before",
    ("tokens", "ngram", "tree"),
    (certain(FIXED, ("exact",)), certain(FIXED, ("typical", "top_k")), certain(("chain",), ("lenience",))),
    looks_up=True,
    aliases=("ngram", "lookup", "prompt_lookup_decoding"),
    tried=(
        Tried("prompt_lookup-4", {"tokens": 4}),
        Tried("prompt_lookup-10", {"tokens": 10}),
        Tried("prompt_lookup-tree", {"tree": [2, 1, 1, 1]}),
    ),
)
