"""Who publishes DSpark heads, and how they write them."""

from speccompile.drafters.dflash.dialects import BACKBONE, DEEPSPEC, REFUSED, SPECULATORS
from speccompile.drafters.dialects import Dialect

SPECFORGE = "SpecForge"

# SpecForge's first heads have both below `logit_head`.
_NAMES = BACKBONE | {r"(?:logit_head\.)?((?:markov|confidence)_head\..+)": r"\1"}

DIALECTS = (
    *REFUSED,
    Dialect(SPECULATORS, keys=("speculators_model_type=dspark",), names=_NAMES),
    Dialect(DEEPSPEC, ("Qwen3DSparkModel",), names=_NAMES),
    Dialect(SPECFORGE, ("*DSpark*",), keys=("dflash_config.target_layer_ids",), names=_NAMES),
    Dialect(SPECFORGE, ("*DFlash*",), keys=("dflash_config.projector_type=dspark",), names=_NAMES),
)
"""Section 5.3 of the families' facts: recognised in this order."""
