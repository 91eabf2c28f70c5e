"""EAGLE (Li et al. 2024), EAGLE-2's trees and HASS (Zhang et al. 2024): layers over the last hidden state, the target's
head."""

from speccompile.families.eagle.dialects import DIALECTS
from speccompile.families.eagle.reading import read
from speccompile.families.family import FIXED, HEAD, Family, certain, sampled

FAMILY = Family(
    "eagle",
    "EAGLE, EAGLE-2 and HASS: a layer over the target's last hidden state, the target's head",
    ("model", "revision", "tokens", "sample", "tree", "taps"),
    (
        certain((*FIXED, "dynamic"), ("exact",)),
        sampled(FIXED, ("exact",)),
        certain(FIXED, ("typical", "top_k")),
        certain(("chain",), ("lenience",)),
        sampled(("chain",), ("lenience",)),
    ),
    weights=HEAD,
    pairs=True,
    needs={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
)
