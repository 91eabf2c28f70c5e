"""P-EAGLE (AWS, 2026): EAGLE-3's layers with mask rows after the text, which make all drafts in one pass."""

from speccompile.drafters.eagle3.dialects import SPECULATORS
from speccompile.drafters.eagle3.taps import default_taps, refused
from speccompile.drafters.method import HEAD, ONE_A_ROUND, ONE_PASS_ROWS, DraftingMethod, Training
from speccompile.drafters.p_eagle.dialects import DIALECTS
from speccompile.drafters.p_eagle.reading import read
from speccompile.drafters.p_eagle.sizes import SIZES

METHOD = DraftingMethod(
    "p_eagle",
    "P-EAGLE: EAGLE-3's layers with mask rows, all drafts in one pass",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    ONE_PASS_ROWS,
    weights=HEAD,
    pairs_next_token=True,
    with_images=True,
    reads_images=True,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    aliases=("peagle",),
    best_nodes=True,
    training=Training(
        says_taps=True,
        sizes=SIZES,
        dialects=(SPECULATORS,),
        depth=8,
        taps=default_taps,
        vocabulary=True,
        anchors=16,
        refusal=refused,
    ),
    runs=ONE_A_ROUND,
)
