"""PARD (An et al. 2025): a language model that was trained to read mask tokens, and so gives all drafts in one pass."""

from speccompile.drafters.family import IN_BLOCKS, OWN, Family, Refused, Training
from speccompile.drafters.model.sizes import SIZES
from speccompile.drafters.pard.reading import read_mask
from speccompile.drafters.sizes import MASK_TOKEN

FAMILY = Family(
    "pard",
    "PARD: a language model with the same vocabulary and a mask token, all drafts in one pass",
    ("model", "revision", "tokens", "sample", "tree"),
    IN_BLOCKS,
    weights=OWN,
    needs={"model": ("the model", "demo/drafter")},
    read_mask=read_mask,
    own_states=Refused("whose mask tokens follow padding", "model"),
    training=Training(sizes={**SIZES, "mask_token": MASK_TOKEN}, dialects=("Hugging Face",), depth=6, anchors=32),
)
