"""BiTA (Lin et al. 2024): the target itself over trained mask rows, which also see trained keys and values."""

from speccompile.drafters.bita.dialects import BITA, DIALECTS
from speccompile.drafters.bita.reading import read
from speccompile.drafters.family import CERTAIN_CHAINS, MASKS, Family, Refused, Training
from speccompile.drafters.sizes import Size

FAMILY = Family(
    "bita",
    "BiTA: the target itself over trained mask rows, which also see trained keys and values before the text",
    ("model", "revision", "tokens", "tree"),
    CERTAIN_CHAINS,
    weights=MASKS,
    needs={"model": ("the folder of the mask tokens and the prefix", "demo/masks")},
    graphs="fused",
    reads_caches=True,
    target_states=Refused("whose trained keys and values stand before those of every layer", "pass"),
    dialects=DIALECTS,
    read=read,
    training=Training(sizes={"prompts": Size(16)}, dialects=(BITA,), depth=4, anchors=64, bounded=True, rate=3e-2),
)
