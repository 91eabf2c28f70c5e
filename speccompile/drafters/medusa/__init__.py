"""Medusa (Cai et al. 2024): a head for every draft depth, all on the target's last hidden state."""

from speccompile.drafters.medusa.dialects import DIALECTS, MEDUSA_2, VLLM
from speccompile.drafters.medusa.reading import read
from speccompile.drafters.medusa.sizes import SIZES
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_ROUND, DraftingMethod, Training
from speccompile.drafters.target import final_norm, require_final_norm

METHOD = DraftingMethod(
    "medusa",
    "Medusa: a head for every token ahead, all of them on the target's last hidden state",
    ("model", "revision", "tokens", "sample", "tree"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    required_keys={"model": ("the folder of the heads", "demo/head")},
    graphs="separate",
    dialects=DIALECTS,
    read=read,
    best_nodes=True,
    training=Training(
        sizes=SIZES,
        dialects=(VLLM,),
        depth=4,
        taps=final_norm,
        vocabulary=True,
        max_depth_is_trained=True,
        refusal=require_final_norm,
        source_sizes=SIZES,
        read_only_dialects={MEDUSA_2: "its heads lie among the weights of the target, which were trained with them"},
    ),
    runs=ONE_A_ROUND,
    with_images=True,
    reads_sources=True,
)
