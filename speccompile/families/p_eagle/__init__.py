"""P-EAGLE (AWS, 2026): EAGLE-3's layers, which read mask rows behind the text, and so give all drafts in one pass."""

from speccompile.families.family import HEAD, IN_BLOCKS, Family
from speccompile.families.p_eagle.dialects import DIALECTS
from speccompile.families.p_eagle.reading import read

FAMILY = Family(
    "p_eagle",
    "P-EAGLE: EAGLE-3's layers with mask rows, all drafts in one pass",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    IN_BLOCKS,
    weights=HEAD,
    pairs=True,
    needs={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
)
