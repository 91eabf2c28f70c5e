"""DSpark (DeepSeek 2026): DFlash with a correction by the previous draft (Markov head) and a confidence head."""

from speccompile.drafters.dflash.dialects import DEEPSPEC
from speccompile.drafters.dflash.sizes import default_taps, refused
from speccompile.drafters.dspark.dialects import DIALECTS, SPECFORGE
from speccompile.drafters.dspark.reading import decide, read
from speccompile.drafters.dspark.sizes import SIZES
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_ROUND, DraftingMethod, Training

METHOD = DraftingMethod(
    "dspark",
    "DSpark: DFlash with a Markov head over the drafts, and a confidence head that ends them early",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches", "threshold"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    decide=decide,
    best_nodes=True,
    training=Training(
        sizes=SIZES,
        dialects=(SPECFORGE, DEEPSPEC),
        depth=7,
        taps=default_taps,
        anchors=512,
        max_depth_is_trained=True,
        refusal=refused,
    ),
    runs=ONE_A_ROUND,
    with_images=True,
)
