"""A smaller language model with the target's vocabulary (Leviathan et al. 2023; Chen et al. 2023)."""

from speccompile.families.family import GROWING, OWN, Family, certain

FAMILY = Family(
    "model",
    "a smaller language model with the same vocabulary",
    ("model", "revision", "tokens", "sample", "tree"),
    (*GROWING, certain(("chain",), ("bild",))),
    weights=OWN,
    needs={"model": ("the model", "demo/drafter")},
)
