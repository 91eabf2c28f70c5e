"""Sizes of a new PARD-2 draft model."""

from speccompile.drafters.model.sizes import SIZES as MODEL_SIZES
from speccompile.drafters.p_eagle.reading import SWITCH
from speccompile.drafters.sizes import MASK_TOKEN

SIZES = {**MODEL_SIZES, SWITCH: MASK_TOKEN}
"""See `Training.sizes`. mask_token: token of the mask rows."""
