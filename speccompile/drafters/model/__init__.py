"""A smaller language model with the target's vocabulary (Leviathan et al. 2023; Chen et al. 2023)."""

from speccompile.drafters.family import GROWING, OWN, Family, Training, certain
from speccompile.drafters.model.sizes import SIZES

FAMILY = Family(
    "model",
    "a smaller language model with the same vocabulary",
    ("model", "revision", "tokens", "sample", "tree", "drafter"),
    (*GROWING, certain(("chain",), ("bild",))),
    weights=OWN,
    needs={"model": ("the model", "demo/drafter")},
    training=Training(sizes=SIZES, dialects=("Hugging Face",), even=True, own_text=True),
    aliases=("draft", "draft_model"),
    elsewhere="and this version drafts for a drafter by looking up in the text alone",
)
