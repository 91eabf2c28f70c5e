"""Sizes of a new Domino head: DFlash's, and those of its cell and of the correction."""

from collections.abc import Mapping

from speccompile.drafters.dflash import sizes as dflash
from speccompile.drafters.sizes import Config, Size, hidden_size

_STATE = 1024
"""Size of the published heads' cell."""


def _state(config: Config, found: Mapping[str, int | str]) -> int:
    return min(_STATE, hidden_size(config, found))


SIZES = {**dflash.SIZES, "gru_hidden_dim": Size(_state), "emb_dim": Size(dflash.correction_rank)}
"""See `Training.sizes`."""
