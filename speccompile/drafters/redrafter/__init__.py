"""ReDrafter (Zhang et al. 2024, Apple): one recurrent cell and one head for all drafts, on the target's last hidden
state. Its beams are a dynamic tree."""

from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_ROUND, DraftingMethod, Training
from speccompile.drafters.redrafter.dialects import APPLE, DIALECTS
from speccompile.drafters.redrafter.reading import CELLS, read
from speccompile.drafters.sizes import Size
from speccompile.drafters.target import final_norm, require_final_norm

METHOD = DraftingMethod(
    "redrafter",
    "ReDrafter: a recurrent cell over the drafts and one head, on the target's last hidden state",
    ("model", "revision", "tokens", "sample", "tree"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    required_keys={"model": ("the folder of the head", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    training=Training(
        sizes={"layers": Size(2), "cell": Size(CELLS[0], words=CELLS)},
        dialects=(APPLE,),
        depth=5,
        taps=final_norm,
        refusal=require_final_norm,
    ),
    runs=ONE_A_ROUND,
    aliases=("recurrent_drafter",),
)
