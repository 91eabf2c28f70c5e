"""Families of models that see pictures."""

from speccompile.runtime.images.anyres import LlavaOneVision
from speccompile.runtime.images.family import Family
from speccompile.runtime.images.lfm2 import Lfm2VL
from speccompile.runtime.images.patches import Gemma4, Pixtral, QwenVL
from speccompile.runtime.images.tiles import Gemma3, Idefics3, InternVL, Llava

FAMILIES: dict[str, type[Family]] = {
    "gemma3": Gemma3, "gemma4": Gemma4, "idefics3": Idefics3, "internvl": InternVL, "llava": Llava,
    "llava_onevision": LlavaOneVision, "lfm2_vl": Lfm2VL, "pixtral": Pixtral, "qwen_vl": QwenVL,
}  # fmt: skip
"""Name of a family in a manifest -> its preprocessing."""
