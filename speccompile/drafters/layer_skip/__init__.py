"""Layer skipping: some of the target's layers, or attention and MLP halves of them, over its KV cache (Zhang et al.
2024, Elhoushi et al. 2024, Xia et al. 2024)."""

from speccompile.drafters.method import (
    DYNAMIC_TREE_ROWS,
    TARGET,
    CompareVariant,
    DraftingMethod,
    FirstLayers,
    greedy_draft_row,
)

METHOD = DraftingMethod(
    "layer_skip",
    "some of the target's own layers, or halves of them, over its caches",
    ("layers", "tokens", "sample", "tree"),
    (*DYNAMIC_TREE_ROWS, greedy_draft_row(("chain",), ("bild",))),
    weights=TARGET,
    with_images=True,
    reads_images=True,
    reads_sources=True,
    required_keys={"layers": ("the layers of the target", "[0, 2]")},
    graphs="fused",
    compare_variants=(
        CompareVariant("layer_skip-half", {"layers": FirstLayers(1 / 2), "tokens": 4}),
        CompareVariant("layer_skip-quarter", {"layers": FirstLayers(1 / 4), "tokens": 4}),
    ),
)
