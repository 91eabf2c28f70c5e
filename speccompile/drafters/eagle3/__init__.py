"""EAGLE-3 and 3.1 (Li et al. 2025): layers over three taps, with a separate head over a draft vocabulary."""

from speccompile.drafters.eagle3.dialects import DIALECTS, SPECFORGE, SPECULATORS
from speccompile.drafters.eagle3.reading import read
from speccompile.drafters.eagle3.taps import default_taps, refused
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_DRAFT, DraftingMethod, Training
from speccompile.drafters.sizes import layer_sizes

METHOD = DraftingMethod(
    "eagle3",
    "EAGLE-3 and 3.1: layers over three taps of the target, an own head and vocabulary",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    pairs_next_token=True,
    with_images=True,
    reads_images=True,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    aliases=("eagle_3",),
    training=Training(
        says_taps=True,
        sizes=layer_sizes(1, narrow=True),
        dialects=(SPECFORGE, SPECULATORS),
        depth=3,
        taps=default_taps,
        vocabulary=True,
        refusal=refused,
    ),
    runs=ONE_A_DRAFT,
)
