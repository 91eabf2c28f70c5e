"""Some of the target's own layers, or halves of them, over the target's caches (Zhang et al. 2024, Elhoushi et al.
2024, Xia et al. 2024)."""

from speccompile.drafters.family import GROWING, TARGET, Family, FirstLayers, Tried, certain

FAMILY = Family(
    "layer_skip",
    "some of the target's own layers, or halves of them, over its caches",
    ("layers", "tokens", "sample", "tree"),
    (*GROWING, certain(("chain",), ("bild",))),
    weights=TARGET,
    needs={"layers": ("the layers of the target", "[0, 2]")},
    graphs="fused",
    tried=(
        Tried("layer_skip-half", {"layers": FirstLayers(1 / 2), "tokens": 4}),
        Tried("layer_skip-quarter", {"layers": FirstLayers(1 / 4), "tokens": 4}),
    ),
)
