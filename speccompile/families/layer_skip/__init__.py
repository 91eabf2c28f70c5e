"""Some of the target's own layers (Zhang et al. 2024, Elhoushi et al. 2024). Its first ones read the target's caches;
any others are given something else than in the target, and have caches of their own."""

from speccompile.families.family import FIXED, TARGET, Family, certain, sampled

FAMILY = Family(
    "layer_skip",
    "some of the target's own layers",
    ("layers", "tokens", "sample", "tree"),
    (
        certain((*FIXED, "dynamic"), ("exact",)),
        sampled(FIXED, ("exact",)),
        certain(FIXED, ("typical", "top_k")),
        certain(("chain",), ("lenience",)),
        sampled(("chain",), ("lenience",)),
        certain(("chain",), ("bild",)),
    ),
    weights=TARGET,
    needs={"layers": ("the layers of the target", "[0, 2]")},
    graphs="fused",
)
