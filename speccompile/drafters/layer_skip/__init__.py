"""Some of the target's own layers, or halves of them, over the target's caches (Zhang et al. 2024, Elhoushi et al.
2024, Xia et al. 2024)."""

from speccompile.drafters.family import GROWING, TARGET, Family, certain

FAMILY = Family(
    "layer_skip",
    "some of the target's own layers, or halves of them, over its caches",
    ("layers", "tokens", "sample", "tree"),
    (*GROWING, certain(("chain",), ("bild",))),
    weights=TARGET,
    needs={"layers": ("the layers of the target", "[0, 2]")},
    graphs="fused",
)
