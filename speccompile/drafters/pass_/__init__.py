"""PaSS (Monea et al. 2023): the target itself, which reads trained embeddings in the place of tokens to come."""

from speccompile.drafters.family import CERTAIN_CHAINS, MASKS, Family, Training
from speccompile.drafters.pass_.dialects import DIALECTS, PASS
from speccompile.drafters.pass_.reading import read

FAMILY = Family(
    "pass",
    "PaSS: the target itself over mask rows, whose embeddings were trained",
    ("model", "revision", "tokens", "tree"),
    CERTAIN_CHAINS,
    weights=MASKS,
    needs={"model": ("the folder of the embeddings", "demo/masks")},
    graphs="fused",
    reads_caches=True,
    dialects=DIALECTS,
    read=read,
    training=Training(dialects=(PASS,), depth=4, anchors=64, bounded=True, rate=3e-2),
)
