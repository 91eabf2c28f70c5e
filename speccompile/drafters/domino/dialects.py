"""Dialects of Domino heads, by publisher."""

from speccompile.drafters.dflash.dialects import BACKBONE, REFUSED, SPECULATORS
from speccompile.drafters.dialects import Dialect

SPECFORGE = "SpecForge"

# SpecForge's first heads have the additional tensors below `logit_head`, speculators' have them below
# `logits_correction`, and vLLM's below `domino_head`.
_OWN = r"(?:(?:logit_head|logits_correction|domino_head)\.)?"
_NAMES = BACKBONE | {
    rf"{_OWN}prefix_gru\.weight_(ih|hh)_l0": r"prefix_gru.weight_\1_l0",
    rf"{_OWN}(?:embed_proj\.0|up_proj)\.weight": "up_proj.weight",
    rf"{_OWN}(?:embed_proj\.2|out_proj)\.weight": "out_proj.weight",
}

DIALECTS = (
    *REFUSED,
    Dialect(SPECULATORS, keys=("speculators_model_type=domino",), names=_NAMES),
    Dialect(SPECFORGE, ("*Domino*",), keys=("dflash_config.target_layer_ids",), names=_NAMES),
    Dialect(SPECFORGE, ("*DFlash*",), keys=("dflash_config.projector_type=domino",), names=_NAMES),
)
"""Dialects in the order of recognition."""
