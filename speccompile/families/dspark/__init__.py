"""DSpark (DeepSeek 2026): DFlash whose drafts are corrected by the one before, and which says how sure it is."""

from speccompile.families.dspark.dialects import DIALECTS
from speccompile.families.dspark.reading import read
from speccompile.families.family import HEAD, IN_BLOCKS, Family

FAMILY = Family(
    "dspark",
    "DSpark: DFlash with a Markov head over the drafts, and a confidence head that ends them early",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches", "threshold"),
    IN_BLOCKS,
    weights=HEAD,
    needs={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
)
