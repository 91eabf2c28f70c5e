"""Multi-token prediction (DeepSeek-AI 2024): layers that were trained with the target, in the target's shards."""

from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_DRAFT, DraftingMethod, Training
from speccompile.drafters.mtp.layouts import DIALECTS
from speccompile.drafters.mtp.reading import count_layers, lacking, read
from speccompile.drafters.target import final_norm
from speccompile.plan.plan import DrafterPlan


def _on_axes(draft: DrafterPlan) -> str | None:
    """Return why several layers are refused: row q of layer k has the position of token q - k, of a chunk before."""
    several = draft.head is not None and count_layers(draft.head) > 1
    return "a single MTP layer: rows of later ones have the positions of earlier tokens" if several else None


METHOD = DraftingMethod(
    "mtp",
    "MTP layers of the target's own shards: one recycled, or several; the target's embedding and head",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    pairs_next_token=True,
    with_images=True,
    reads_images=True,
    on_axes=_on_axes,
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    not_found_error=lacking,
    training=Training(depth=3, taps=final_norm, depth_decay=0.6, makes_new=False),  # FastMTP's .51, .31, .18,
    runs=ONE_A_DRAFT,
)
