"""Families of models that see pictures."""

from speccompile.runtime.images.family import Family
from speccompile.runtime.images.patches import QwenVL
from speccompile.runtime.images.tiles import Gemma3, Idefics3, InternVL

FAMILIES: dict[str, type[Family]] = {
    "gemma3": Gemma3, "idefics3": Idefics3, "internvl": InternVL, "qwen_vl": QwenVL
}  # fmt: skip
"""Name of a family in a manifest -> its preprocessing."""
