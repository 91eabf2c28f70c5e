"""Dialects of EAGLE heads, by publisher."""

from speccompile.drafters.dialects import Dialect

SPECULATORS, NESTED, VLLM = "speculators", "vLLM, converted", "vLLM"

_ENDS = {
    r".*rotary_emb\.inv_freq": None,  # derived from the config
    r"(?:model\.)?(embed_tokens|lm_head)\.weight": None,  # frozen copies of the target's, which is used instead
}
_LAYERS = _ENDS | {r"(?:model\.)?layers\.(\d+)\.(.+)": r"layers.\1.\2", r"fc\.(weight|bias)": r"fc.\1"}
_TRANSFORMER = _ENDS | {r"transformer\.(.+)": r"layers.0.\1", r"fusion_fc\.(weight|bias)": r"fc.\1"}

_OTHERS = ("*hidden_norm*", "midlayer.*", "mask_hidden", "d2t")
"""Tensors of EAGLE-3, P-EAGLE and DFlash, some of which are published under names of EAGLE's architectures."""

DIALECTS = (
    Dialect(
        "EAGLE with norms of its own",
        tensors=("*fc.weight", "*enorm.weight"),
        without=_OTHERS,
        refused="norms over the embedding and the hidden state (enorm, hnorm) are not compiled",
    ),
    Dialect(SPECULATORS, keys=("speculators_model_type=eagle",), names=_TRANSFORMER),
    Dialect(NESTED, keys=("model_type=eagle", "model.hidden_size"), tensors=("fc.weight",), names=_LAYERS),
    Dialect(VLLM, ("EagleLlamaForCausalLM", "LlamaForCausalLMEagle"), without=_OTHERS, names=_LAYERS),
    # HASS as well: only its training differs.
    Dialect("SafeAILab", tensors=("fc.weight", "layers.0.self_attn.q_proj.weight"), without=_OTHERS, names=_LAYERS),
)
"""Dialects in the order of recognition (section 2 of the drafting methods' facts)."""
