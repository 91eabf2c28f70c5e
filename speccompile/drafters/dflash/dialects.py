"""Dialects of DFlash heads, by publisher."""

from speccompile.drafters.dialects import LLAMA_CPP, Dialect

SPECULATORS, DEEPSPEC, TRANSFORMERS = "speculators", "DeepSpec", "transformers"
ZLAB, ZLAB_2 = "z-lab", "z-lab DFlash2"

BACKBONE = {
    r"(fc|hidden_norm|norm|embed_tokens|lm_head)\.weight": r"\1.weight",
    r"layers\.(\d+)\.((?:self_attn|mlp|input_layernorm|post_attention_layernorm)\..+)": r"layers.\1.\2",
    r"mask_embedding(?:\.weight)?": "mask_embedding",
    r"d2t": "d2t",
    r"t2d|verifier_(?:lm_head|norm)\.weight": None,  # of training
    r".*rotary_emb\.inv_freq": None,  # derived from the config
}
_SELECTING = BACKBONE | {
    r"layers\.(\d+)\.((?:attention|mlp)_conv\..+)": r"layers.\1.\2",
    r"candidate_selector\.(predecessor|successor)_codebook(?:\.weight)?": r"candidate_selector.\1_codebook.weight",
    r"candidate_selector\.hidden_projection\.weight": "candidate_selector.hidden_projection.weight",
}
_MUSE = BACKBONE | {r"encoder\.fc\.weight": "fc.weight", r"encoder\.output_norm_enc\.weight": "hidden_norm.weight"}

_SPECULATOR = "speculators_model_type"
_DFLASH = ("*DFlash*", "*DSpark*", "*Domino*")
_OTHER_HEADS = tuple(f"dflash_config.projector_type={kind}" for kind in ("dspark", "domino"))

REFUSED = (
    Dialect(
        "DFlash with attention sinks",
        _DFLASH,
        tensors=("*.sinks",),
        refused="attention sinks of a drafter are not compiled",
    ),
    Dialect(
        "DFlash with fused projections",
        _DFLASH,
        tensors=("*.self_attn.qkv_proj.*",),
        refused="fused projections (qkv_proj) are not compiled",
    ),
    Dialect("DFlash with gates", _DFLASH, tensors=("*.g_proj.*",), refused="gated attention (g_proj) is not compiled"),
    Dialect(
        "DeepSpec for Gemma 4",
        ("Gemma4DSpark*",),
        refused="its layers have norms and scales of Gemma's, which are not compiled",
    ),
)
"""Refused dialects, tried first for all kinds of block drafters."""

DIALECTS = (
    *REFUSED,
    Dialect(LLAMA_CPP, ("dflash",), lacks=("markov_rank",), names=_SELECTING),
    Dialect(SPECULATORS, keys=("speculators_model_type=dflash",), names=BACKBONE),
    Dialect(SPECULATORS, keys=("speculators_model_type=dflash2",), names=_SELECTING),
    # DSpark's name, but without DSpark's additional heads.
    Dialect(
        DEEPSPEC,
        ("Qwen3DSparkModel",),
        keys=("markov_rank=0",),
        lacks=("enable_confidence_head=true",),
        names=BACKBONE,
    ),
    Dialect(TRANSFORMERS, ("MuseGlimmerAssistant*",), names=_MUSE),
    Dialect(ZLAB_2, ("*DFlash2*",), lacks=(_SPECULATOR,), names=_SELECTING),
    # SpecForge writes the same.
    Dialect(ZLAB, ("*DFlash*",), lacks=(*_OTHER_HEADS, _SPECULATOR), names=BACKBONE),
)
"""Dialects in the order of recognition (sections 5.1 and 5.2 of the drafting methods' facts)."""
