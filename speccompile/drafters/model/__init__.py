"""A smaller language model with the target's vocabulary (Leviathan et al. 2023; Chen et al. 2023)."""

from speccompile.drafters.method import DYNAMIC_TREE_ROWS, ONE_A_DRAFT, OWN, DraftingMethod, Training, greedy_draft_row
from speccompile.drafters.model.sizes import SIZES, SOURCE_SIZES

METHOD = DraftingMethod(
    "model",
    "a smaller language model with the same vocabulary",
    ("model", "revision", "adapter", "tokenizer", "tokens", "sample", "tree", "drafter"),
    (*DYNAMIC_TREE_ROWS, greedy_draft_row(("chain",), ("bild",))),
    weights=OWN,
    with_images=True,
    required_keys={"model": ("the model", "demo/drafter")},
    training=Training(
        sizes=SIZES, dialects=("Hugging Face",), is_depth_independent=True, own_text=True, source_sizes=SOURCE_SIZES
    ),
    aliases=("draft", "draft_model"),
    elsewhere="and this version drafts for a drafter by looking up in the text alone",
    over_texts=True,
    runs=ONE_A_DRAFT,
    reads_sources=True,
)
