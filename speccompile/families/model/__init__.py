"""A smaller language model with the target's vocabulary (Leviathan et al. 2023; Chen et al. 2023)."""

from speccompile.families.family import FIXED, OWN, Family, certain, sampled

FAMILY = Family(
    "model",
    "a smaller language model with the same vocabulary",
    ("model", "revision", "tokens", "sample", "tree"),
    (
        certain((*FIXED, "dynamic"), ("exact",)),
        sampled(FIXED, ("exact",)),
        certain(FIXED, ("typical", "top_k")),
        certain(("chain",), ("lenience",)),
        sampled(("chain",), ("lenience",)),
        certain(("chain",), ("bild",)),
    ),
    weights=OWN,
    needs={"model": ("the model", "demo/drafter")},
)
