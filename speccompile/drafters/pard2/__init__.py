"""PARD-2 (An et al. 2026, AMD): PARD's draft model, to whose embeddings it adds features of the target. The same folder
drafts without them as `pard`."""

from speccompile.drafters.method import HEAD, ONE_A_ROUND, ONE_PASS_ROWS, DraftingMethod, Training
from speccompile.drafters.pard2.dialects import AMD, DIALECTS
from speccompile.drafters.pard2.reading import default_taps, read, refused
from speccompile.drafters.pard2.sizes import SIZES

METHOD = DraftingMethod(
    "pard2",
    "PARD-2: a language model with mask tokens that reads features of the target, all drafts in one pass",
    ("model", "revision", "tokens", "sample", "tree", "taps", "switches"),
    ONE_PASS_ROWS,
    weights=HEAD,
    pairs_next_token=True,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    aliases=("pard_2",),
    best_nodes=True,
    training=Training(
        says_taps=True,
        sizes=SIZES,
        dialects=(AMD,),
        depth=8,
        taps=default_taps,
        anchors=16,
        refusal=refused,
    ),
    runs=ONE_A_ROUND,
)
