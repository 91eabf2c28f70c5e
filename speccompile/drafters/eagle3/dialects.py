"""Dialects of EAGLE-3 heads, by publisher."""

from speccompile.drafters.dialects import LLAMA_CPP, Dialect

SPECULATORS, SPECFORGE = "speculators", "SpecForge"

_ENDS = {
    r"(fc|norm|lm_head|input_norm)\.weight": r"\1.weight",
    r"fc\.bias": "fc.bias",
    r"fc_norm\.(\d+)\.weight": r"fc_norm.\1.weight",
    r"aux_norm_low\.weight": "fc_norm.0.weight",
    r"aux_norm_mid\.weight": "fc_norm.1.weight",
    r"aux_norm_high\.weight": "fc_norm.2.weight",
    r"embed_tokens\.weight": "embed_tokens.weight",
    r"d2t": "d2t",
    r"t2d": None,  # of training
}
_DERIVED = {r".*rotary_emb\.inv_freq": None}  # derived from the config
MIDLAYER = _DERIVED | {r"midlayer\.(.+)": r"layers.0.\1"} | _ENDS
LAYERS = _DERIVED | {r"layers\.(\d+)\.(.+)": r"layers.\1.\2"} | _ENDS

_EAGLE3 = ("*Eagle3*",)

DIALECTS = (
    Dialect(
        "MLA EAGLE-3 (Kimi, DeepSeek)",
        ("*Eagle3Deepseek*",),
        refused="its layers attend over latent keys (MLA), which are not compiled yet",
    ),
    Dialect(LLAMA_CPP, ("eagle3",), names=LAYERS),
    Dialect(SPECULATORS, keys=("speculators_model_type=eagle3",), names=LAYERS),
    Dialect(
        "DeepSpec",
        _EAGLE3,
        keys=("target_layer_ids",),
        tensors=("layers.0.*",),
        without=("mask_hidden",),
        names=LAYERS,
    ),
    Dialect(SPECFORGE, _EAGLE3, keys=("eagle_config",), tensors=("midlayer.*",), names=MIDLAYER),
    Dialect("ModelOpt", _EAGLE3, tensors=("layers.0.self_attn.q_proj.weight",), without=("mask_hidden",), names=LAYERS),
    Dialect("AngelSlim", _EAGLE3, tensors=("midlayer.*",), names=MIDLAYER),
    Dialect("nebius", keys=("truncated_vocab_size",), tensors=("midlayer.*",), names=MIDLAYER),
    Dialect("SafeAILab", ("LlamaForCausalLM",), keys=("draft_vocab_size",), tensors=("midlayer.*",), names=MIDLAYER),
)
"""Dialects in the order of recognition (sections 3.1 to 3.3 of the drafting methods' facts)."""
