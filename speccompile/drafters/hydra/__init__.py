"""Hydra and Hydra++ (Ankner et al. 2024): heads on the target's hidden state and all earlier drafts."""

from speccompile.drafters.hydra.dialects import DIALECTS, HYDRA, MLP, PREFIX_MLP
from speccompile.drafters.hydra.reading import read
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_ROUND, DraftingMethod, Training
from speccompile.drafters.sizes import Size
from speccompile.drafters.target import final_norm, require_final_norm

METHOD = DraftingMethod(
    "hydra",
    "Hydra and Hydra++: a head for every token ahead, which reads the drafts before it as well",
    ("model", "revision", "tokens", "sample", "tree", "taps"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    required_keys={"model": ("the folder of the heads", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    training=Training(
        sizes={"layers": Size(1), "arch": Size(MLP, words=(MLP, PREFIX_MLP))},
        dialects=(HYDRA,),
        depth=4,
        taps=final_norm,
        max_depth_is_trained=True,
        refusal=require_final_norm,
    ),
    runs=ONE_A_ROUND,
    with_images=True,
)
