"""BiTA (Lin et al. 2024): the target itself over trained mask rows, which also attend to trained keys and values."""

from speccompile.drafters.bita.dialects import BITA, DIALECTS
from speccompile.drafters.bita.reading import read
from speccompile.drafters.method import GREEDY_CHAIN_ROWS, MASKS, DraftingMethod, Incompatibility, Training
from speccompile.drafters.sizes import Size

METHOD = DraftingMethod(
    "bita",
    "BiTA: the target itself over trained mask rows, which also see trained keys and values before the text",
    ("model", "revision", "tokens", "tree"),
    GREEDY_CHAIN_ROWS,
    weights=MASKS,
    required_keys={"model": ("the folder of the mask tokens and the prefix", "demo/masks")},
    graphs="fused",
    reads_target_cache=True,
    target_states=Incompatibility("whose trained keys and values stand before those of every layer", "pass"),
    dialects=DIALECTS,
    read=read,
    training=Training(
        sizes={"prompts": Size(16)},
        dialects=(BITA,),
        depth=4,
        anchors=64,
        max_depth_is_trained=True,
        learning_rate=3e-2,
    ),
)
