"""Kangaroo (Liu et al. 2024): an adapter over the target's first layers, which stops where it is unsure."""

from speccompile.families.family import HEAD, Family, certain, sampled
from speccompile.families.kangaroo.dialects import DIALECTS
from speccompile.families.kangaroo.reading import read

FAMILY = Family(
    "kangaroo",
    "Kangaroo: an adapter over the target's first layers and their caches, which stops where it is unsure",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches", "threshold"),
    (certain(("chain",), ("exact",)), sampled(("chain",), ("exact",))),
    weights=HEAD,
    needs={"model": ("the folder of the adapter", "demo/head")},
    graphs="fused",
    reads_caches=True,
    threshold=0.6,
    keeps_unsure=True,
    dialects=DIALECTS,
    read=read,
)
