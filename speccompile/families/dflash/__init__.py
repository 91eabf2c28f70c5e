"""DFlash (Chen et al. 2026) and DFlash2: a block of drafts in one pass over the target's features."""

from speccompile.families.dflash.dialects import DIALECTS
from speccompile.families.dflash.reading import read
from speccompile.families.family import HEAD, IN_BLOCKS, Family

FAMILY = Family(
    "dflash",
    "DFlash and DFlash2: a block of drafts in one pass over the target's features",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    IN_BLOCKS,
    weights=HEAD,
    needs={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
)
