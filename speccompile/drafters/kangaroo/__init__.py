"""Kangaroo (Liu et al. 2024): an adapter over the target's first layers, which stops where it is unsure."""

from speccompile.drafters.family import HEAD, Family, Training, certain, sampled
from speccompile.drafters.kangaroo.dialects import DIALECTS, KANGAROO
from speccompile.drafters.kangaroo.reading import default_taps, read, refused
from speccompile.drafters.sizes import layer_sizes

_SIZES = {name: size for name, size in layer_sizes(1).items() if name != "intermediate_size"}  # there is no MLP

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
    training=Training(sizes=_SIZES, dialects=(KANGAROO,), depth=6, taps=default_taps, refusal=refused, even=True),
)
