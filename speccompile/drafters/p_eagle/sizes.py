"""Sizes of a new P-EAGLE head."""

from speccompile.drafters.p_eagle.reading import SWITCH
from speccompile.drafters.sizes import MASK_TOKEN, layer_sizes

SIZES = {**layer_sizes(2), SWITCH: MASK_TOKEN}
"""See `Training.sizes`. mask_token: token of the mask rows."""
