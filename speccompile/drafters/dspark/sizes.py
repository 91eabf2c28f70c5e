"""Sizes of a new DSpark head: DFlash's, and those of its Markov head."""

from speccompile.drafters.dflash import sizes as dflash
from speccompile.drafters.dspark.reading import MARKOV
from speccompile.drafters.sizes import Size

SIZES = {**dflash.SIZES, "markov_rank": Size(dflash.correction_rank), "markov_head_type": Size(MARKOV[0], words=MARKOV)}
"""See `Training.sizes`."""
