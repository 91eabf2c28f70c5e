"""Dialects of Medusa heads, by publisher."""

from speccompile.drafters.dialects import Dialect

MEDUSA_2, VLLM = "Medusa-2", "vLLM"

_NUMBERED = {
    r"(\d+)\.(\d+)\.linear\.(weight|bias)": r"blocks.\1.layers.\2.\3",
    r"(\d+)\.\d+\.weight": r"lm_heads.\1.weight",
}
_IN_MODEL = {rf"medusa_head\.{name}": ours for name, ours in _NUMBERED.items()} | {
    r"(?!medusa_head\.).+": None,  # the target's own
}
_BLOCKS = {
    r"(?:medusa_heads\.)?blocks\.(\d+)\.layers\.(\d+)\.(?:linear\.)?(weight|bias)": r"blocks.\1.layers.\2.\3",
    r"(?:medusa_heads\.)?lm_heads\.(\d+)\.weight": r"lm_heads.\1.weight",
    r"(?:medusa_heads\.)?lm_head\.weight": "lm_head.weight",
    r"token_map": "token_map",
}
_NUMBER, _BLOCK = ("0.0.linear.weight",), ("*blocks.0.layers.0.*weight",)

DIALECTS = (
    Dialect(MEDUSA_2, tensors=("medusa_head.*",), names=_IN_MODEL),
    Dialect("FasterDecoding", keys=("medusa_num_heads",), tensors=_NUMBER, names=_NUMBERED),
    Dialect("FasterDecoding", tensors=_NUMBER, names=_NUMBERED),
    Dialect(VLLM, ("MedusaModel",), tensors=_BLOCK, names=_BLOCKS),
    Dialect(VLLM, keys=("model_type=medusa",), tensors=_BLOCK, names=_BLOCKS),
)
"""Dialects in the order of recognition (section 6 of the drafting methods' facts). text-generation-inference uses
FasterDecoding's, in safetensors."""
