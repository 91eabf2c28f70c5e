"""Jacobi decoding (Santilli et al. 2023): what the target said behind refused drafts is drafted next."""

from speccompile.drafters.family import CERTAIN_CHAINS, Family, Tried

FAMILY = Family(
    "jacobi",
    "Jacobi: what the target said behind the drafts that it refused",
    ("tokens", "tree"),
    CERTAIN_CHAINS,
    successors=1,
    tried=(Tried("jacobi-4", {"tokens": 4}),),
)
