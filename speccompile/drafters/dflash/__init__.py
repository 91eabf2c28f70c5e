"""DFlash (Chen et al. 2026) and DFlash2: a block of drafts in one pass over the target's features."""

from speccompile.drafters.dflash.dialects import DIALECTS, ZLAB, ZLAB_2
from speccompile.drafters.dflash.reading import read
from speccompile.drafters.dflash.sizes import SIZES, default_taps, refused
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_ROUND, DraftingMethod, Training

METHOD = DraftingMethod(
    "dflash",
    "DFlash and DFlash2: a block of drafts in one pass over the target's features",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    best_nodes=True,
    training=Training(
        sizes=SIZES,
        dialects=(ZLAB,),
        depth=7,
        taps=default_taps,
        anchors=512,
        max_depth_is_trained=True,
        refusal=refused,
        read_only_dialects={ZLAB_2: "tokens that its selector leaves out have no probability to learn from"},
    ),
    runs=ONE_A_ROUND,
    with_images=True,
)
