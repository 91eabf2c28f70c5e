"""Sizes and taps of a new DFlash or DSpark head."""

from collections.abc import Mapping

from speccompile.drafters.eagle3.taps import refused_places
from speccompile.drafters.sizes import LAYERS, MASK_TOKEN, Config, Size, config_value, hidden_size, layer_sizes

_DEEP = 8
"""Minimum number of target layers for which z-lab's rule gives five distinct taps."""
_MOST = 5
"""Number of layers, and of taps, of the published heads."""
_RANK = 256
"""Rank of the corrections of the published DSpark and Domino heads."""


def _layers(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the published number of layers, at most half of the target's."""
    return min(_MOST, -(-config_value(config, *LAYERS) // 2))


def correction_rank(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the published rank of corrections, at most a quarter of the hidden size."""
    return max(1, min(_RANK, hidden_size(config, found) // 4))


SIZES = {**layer_sizes(_MOST), "layers": Size(_layers), "mask_token": MASK_TOKEN}
"""See `Training.sizes`."""


def default_taps(layers: int) -> tuple[str, ...]:
    """Return the outputs of evenly spaced layers from the second to the third last, as z-lab does; of a small target,
    every other layer up to the last."""
    if layers < _DEEP:
        return tuple(f"layers.{layer}.output" for layer in range((layers - 1) % 2, layers, 2))
    first, last = 1, layers - 3
    return tuple(f"layers.{round(first + index * (last - first) / (_MOST - 1))}.output" for index in range(_MOST))


def refused(dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]) -> tuple[str, str, str] | None:
    """See `Training.refusal`."""
    return refused_places(taps, "layers.2.output")
