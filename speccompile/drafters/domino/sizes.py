"""Sizes of a new Domino head: DFlash's, and those of its cell and of the correction."""

from collections.abc import Mapping

from speccompile.drafters.dflash import sizes as dflash
from speccompile.drafters.sizes import Config, Size, hidden_size

_STATE, _RANK = 1024, 256
"""Sizes of the published heads."""


def _state(config: Config, found: Mapping[str, int | str]) -> int:
    return min(_STATE, hidden_size(config, found))


def _rank(config: Config, found: Mapping[str, int | str]) -> int:
    return max(1, min(_RANK, hidden_size(config, found) // 4))


SIZES = {**dflash.SIZES, "gru_hidden_dim": Size(_state), "emb_dim": Size(_rank)}
"""See `Training.sizes`."""
