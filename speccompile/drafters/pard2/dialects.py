"""The dialect of PARD-2: a language model of transformers, and the projection of the target's features."""

from speccompile.drafters.dialects import Dialect

AMD = "AMD"
PROJECTION_FILE = "warp_model.bin"
"""Pickle with the projection, beside the language model's safetensors; checkpoints of a training have one file."""

_NAMES = {
    r"(?:base_model\.)?model\.layers\.(\d+)\.(.+)": r"layers.\1.\2",
    r"(?:base_model\.)?model\.(embed_tokens|norm)\.weight": r"\1.weight",
    r"(?:base_model\.)?lm_head\.weight": "lm_head.weight",
    r"target_proj\.(weight|bias)": r"target_proj.\1",
}

DIALECTS = (
    Dialect(AMD, keys=("spd_type=pard2",), names=_NAMES, is_model=True),
    Dialect(AMD, keys=("pard2=true",), names=_NAMES, is_model=True),
)
