"""Dialects of P-EAGLE heads, by publisher: EAGLE-3's names, and the mask's hidden state."""

from speccompile.drafters.dialects import Dialect
from speccompile.drafters.eagle3.dialects import LAYERS, MIDLAYER, SPECULATORS

MASK = "mask_hidden"
_MASK = {MASK: MASK}

DIALECTS = (
    Dialect(SPECULATORS, keys=("speculators_model_type=peagle",), names=LAYERS | _MASK),
    Dialect("PEagle", ("PEagle*",), lacks=("speculators_model_type",), tensors=("layers.0.*",), names=LAYERS | _MASK),
    # vLLM, NeMo and ModelOpt keep EAGLE-3's architecture: the tensor distinguishes them.
    Dialect("vLLM", tensors=(MASK, "layers.0.*"), names=LAYERS | _MASK),
    Dialect("SpecForge", tensors=(MASK, "midlayer.*"), names=MIDLAYER | _MASK),
)
"""Dialects in the order of recognition (section 5.5 of the drafting methods' facts)."""
