"""Some of the target's own layers (Zhang et al. 2024, Elhoushi et al. 2024). Its first ones read the target's caches;
any others are given something else than in the target, and have caches of their own."""

from speccompile.families.family import GROWING, TARGET, Family, certain

FAMILY = Family(
    "layer_skip",
    "some of the target's own layers",
    ("layers", "tokens", "sample", "tree"),
    (*GROWING, certain(("chain",), ("bild",))),
    weights=TARGET,
    needs={"layers": ("the layers of the target", "[0, 2]")},
    graphs="fused",
)
