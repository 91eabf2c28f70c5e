"""PARD (An et al. 2025): a language model that was trained with mask tokens, and makes all drafts in one pass."""

from speccompile.drafters.method import ONE_A_ROUND, ONE_PASS_ROWS, OWN, DraftingMethod, Incompatibility, Training
from speccompile.drafters.model.sizes import SIZES
from speccompile.drafters.pard.reading import read_mask
from speccompile.drafters.sizes import MASK_TOKEN

METHOD = DraftingMethod(
    "pard",
    "PARD: a language model with the same vocabulary and a mask token, all drafts in one pass",
    ("model", "revision", "adapter", "tokenizer", "tokens", "sample", "tree"),
    ONE_PASS_ROWS,
    weights=OWN,
    required_keys={"model": ("the model", "demo/drafter")},
    read_mask=read_mask,
    own_states=Incompatibility("whose mask tokens follow padding", "model"),
    best_nodes=True,
    training=Training(sizes={**SIZES, "mask_token": MASK_TOKEN}, dialects=("Hugging Face",), depth=6, anchors=32),
    runs=ONE_A_ROUND,
)
