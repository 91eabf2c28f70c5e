"""Multi-token prediction (DeepSeek-AI 2024): layers that were trained with the target, in the target's shards."""

from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_DRAFT, DraftingMethod, Training
from speccompile.drafters.mtp.layouts import DIALECTS
from speccompile.drafters.mtp.reading import lacking, read
from speccompile.drafters.target import final_norm

METHOD = DraftingMethod(
    "mtp",
    "MTP layers of the target's own shards: one recycled, or several; the target's embedding and head",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    pairs_next_token=True,
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    not_found_error=lacking,
    training=Training(depth=3, taps=final_norm, depth_decay=0.6, makes_new=False),  # FastMTP's .51, .31, .18,
    runs=ONE_A_DRAFT,
)
