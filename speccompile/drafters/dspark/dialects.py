"""Dialects of DSpark heads, by publisher."""

from speccompile.drafters.dflash.dialects import BACKBONE, DEEPSPEC, REFUSED, SPECULATORS
from speccompile.drafters.dialects import LLAMA_CPP, Dialect

SPECFORGE = "SpecForge"

# SpecForge's first heads have the Markov and confidence heads below `logit_head`.
_NAMES = BACKBONE | {r"(?:logit_head\.)?((?:markov|confidence)_head\..+)": r"\1"}

DIALECTS = (
    *REFUSED,
    Dialect(LLAMA_CPP, ("dflash",), keys=("markov_rank",), names=_NAMES),
    Dialect(SPECULATORS, keys=("speculators_model_type=dspark",), names=_NAMES),
    Dialect(DEEPSPEC, ("Qwen3DSparkModel",), names=_NAMES),
    Dialect(SPECFORGE, ("*DSpark*",), keys=("dflash_config.target_layer_ids",), names=_NAMES),
    Dialect(SPECFORGE, ("*DFlash*",), keys=("dflash_config.projector_type=dspark",), names=_NAMES),
)
"""Dialects in the order of recognition (section 5.3 of the drafting methods' facts)."""
