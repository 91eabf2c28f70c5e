"""Kangaroo (Liu et al. 2024): an adapter over the target's first layers, which stops at low confidence."""

from speccompile.drafters.kangaroo.dialects import DIALECTS, KANGAROO
from speccompile.drafters.kangaroo.reading import default_taps, read, refused
from speccompile.drafters.method import HEAD, ONE_A_DRAFT, DraftingMethod, Training, greedy_draft_row, sampled_draft_row
from speccompile.drafters.sizes import layer_sizes

_SIZES = {name: size for name, size in layer_sizes(1).items() if name != "intermediate_size"}  # there is no MLP

METHOD = DraftingMethod(
    "kangaroo",
    "Kangaroo: an adapter over the target's first layers and their caches, which stops where it is unsure",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches", "threshold"),
    (greedy_draft_row(("chain",), ("exact",)), sampled_draft_row(("chain",), ("exact",))),
    weights=HEAD,
    required_keys={"model": ("the folder of the adapter", "demo/head")},
    graphs="fused",
    reads_target_cache=True,
    threshold=0.6,
    verifies_low_confidence=True,
    dialects=DIALECTS,
    read=read,
    training=Training(
        sizes=_SIZES, dialects=(KANGAROO,), depth=6, taps=default_taps, refusal=refused, is_depth_independent=True
    ),
    runs=ONE_A_DRAFT,
)
