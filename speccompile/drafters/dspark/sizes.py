"""Sizes of a new DSpark head: DFlash's, and those of its Markov head."""

from collections.abc import Mapping

from speccompile.drafters.dflash import sizes as dflash
from speccompile.drafters.dspark.reading import MARKOV
from speccompile.drafters.sizes import Config, Size, hidden_size

_RANK = 256
"""Rank of the published Markov heads."""


def _rank(config: Config, found: Mapping[str, int | str]) -> int:
    return max(1, min(_RANK, hidden_size(config, found) // 4))


SIZES = {**dflash.SIZES, "markov_rank": Size(_rank), "markov_head_type": Size(MARKOV[0], words=MARKOV)}
"""See `Training.sizes`."""
