"""DSpark (DeepSeek 2026): DFlash whose drafts are corrected by the one before, and which says how sure it is."""

from speccompile.drafters.dflash.dialects import DEEPSPEC
from speccompile.drafters.dflash.sizes import default_taps, refused
from speccompile.drafters.dspark.dialects import DIALECTS, SPECFORGE
from speccompile.drafters.dspark.reading import read
from speccompile.drafters.dspark.sizes import SIZES
from speccompile.drafters.family import HEAD, IN_BLOCKS, Family, Training

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
    training=Training(
        sizes=SIZES,
        dialects=(SPECFORGE, DEEPSPEC),
        depth=7,
        taps=default_taps,
        anchors=512,
        bounded=True,
        refusal=refused,
    ),
)
