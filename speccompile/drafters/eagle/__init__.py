"""EAGLE (Li et al. 2024), EAGLE-2's trees and HASS (Zhang et al. 2024): layers over the last hidden state, with the
target's head."""

from speccompile.drafters.eagle.dialects import DIALECTS, VLLM
from speccompile.drafters.eagle.reading import read
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_DRAFT, DraftingMethod, Training
from speccompile.drafters.sizes import layer_sizes
from speccompile.drafters.target import final_norm, require_final_norm

METHOD = DraftingMethod(
    "eagle",
    "EAGLE, EAGLE-2 and HASS: a layer over the target's last hidden state, the target's head",
    ("model", "revision", "tokens", "sample", "tree", "taps"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    pairs_next_token=True,
    with_images=True,
    reads_images=True,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    aliases=("eagle1", "eagle_1"),
    training=Training(sizes=layer_sizes(1), dialects=(VLLM,), depth=3, taps=final_norm, refusal=require_final_norm),
    runs=ONE_A_DRAFT,
)
