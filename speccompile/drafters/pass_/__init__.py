"""PaSS (Monea et al. 2023): the target itself over trained embeddings at the positions of future tokens."""

from speccompile.drafters.method import GREEDY_CHAIN_ROWS, MASKS, DraftingMethod, Training
from speccompile.drafters.pass_.dialects import DIALECTS, PASS
from speccompile.drafters.pass_.reading import read

METHOD = DraftingMethod(
    "pass",
    "PaSS: the target itself over mask rows, whose embeddings were trained",
    ("model", "revision", "tokens", "tree"),
    GREEDY_CHAIN_ROWS,
    weights=MASKS,
    required_keys={"model": ("the folder of the embeddings", "demo/masks")},
    graphs="fused",
    reads_target_cache=True,
    dialects=DIALECTS,
    read=read,
    training=Training(dialects=(PASS,), depth=4, anchors=64, max_depth_is_trained=True, learning_rate=3e-2),
)
