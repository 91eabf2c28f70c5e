"""Domino (2605.29707): DFlash with a correction of each draft by a recurrent cell over those before it."""

from speccompile.drafters.dflash.sizes import default_taps, refused
from speccompile.drafters.domino.dialects import DIALECTS, SPECFORGE
from speccompile.drafters.domino.reading import read
from speccompile.drafters.domino.sizes import SIZES
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_ROUND, DraftingMethod, Training

METHOD = DraftingMethod(
    "domino",
    "Domino: DFlash with a GRU over the drafts of a block, which corrects each by those before it",
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
        dialects=(SPECFORGE,),
        depth=7,
        taps=default_taps,
        anchors=512,
        max_depth_is_trained=True,
        refusal=refused,
    ),
    runs=ONE_A_ROUND,
)
