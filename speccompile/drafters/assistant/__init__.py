"""Gemma 4's assistant: layers without keys and values, which attend to those of the target's last layers."""

from speccompile.drafters.assistant.dialects import DIALECTS
from speccompile.drafters.assistant.reading import read
from speccompile.drafters.method import DYNAMIC_TREE_ROWS, HEAD, ONE_A_DRAFT, DraftingMethod

METHOD = DraftingMethod(
    "assistant",
    "Gemma 4's assistant: layers without caches of their own, over those of the target's last layers",
    ("model", "revision", "tokens", "sample", "tree"),
    DYNAMIC_TREE_ROWS,
    weights=HEAD,
    required_keys={"model": ("the folder of the assistant", "demo/assistant")},
    graphs="fused",
    reads_target_cache=True,
    with_images=True,
    reads_images=True,
    dialects=DIALECTS,
    read=read,
    runs=ONE_A_DRAFT,
)
