"""Several language models whose drafts are merged into one tree (SpecInfer, Miao et al. 2023)."""

from speccompile.drafters.family import FIXED, OWN, Family, certain

FAMILY = Family(
    "models",
    "several language models, their drafts merged",
    ("models", "tokens", "tree"),
    (certain(FIXED, ("exact",)), certain(FIXED, ("typical", "top_k"))),
    weights=OWN,
    needs={"models": ("the models", "[demo/drafter, demo/other]")},
    trains_as="model",
)
