"""EAGLE (Li et al. 2024), EAGLE-2's trees and HASS (Zhang et al. 2024): layers over the last hidden state, the target's
head."""

from speccompile.drafters.eagle.dialects import DIALECTS, VLLM
from speccompile.drafters.eagle.reading import read
from speccompile.drafters.family import GROWING, HEAD, Family, Training
from speccompile.drafters.sizes import layer_sizes
from speccompile.drafters.target import final_norm, norm_alone

FAMILY = Family(
    "eagle",
    "EAGLE, EAGLE-2 and HASS: a layer over the target's last hidden state, the target's head",
    ("model", "revision", "tokens", "sample", "tree", "taps"),
    GROWING,
    weights=HEAD,
    pairs=True,
    needs={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    aliases=("eagle1", "eagle_1"),
    training=Training(sizes=layer_sizes(1), dialects=(VLLM,), depth=3, taps=final_norm, refusal=norm_alone),
)
