"""The shape of a new DFlash or DSpark head, and what it reads of the target."""

from collections.abc import Mapping

from speccompile.drafters.eagle3.taps import refused_places
from speccompile.drafters.sizes import LAYERS, MASK_TOKEN, Config, Size, config_value, layer_sizes

_DEEP = 8
"""Layers from which on z-lab's rule gives different taps."""
_MOST = 5
"""Layers, and taps, of the published heads."""


def _layers(config: Config, found: Mapping[str, int | str]) -> int:
    """As published; half as many as a small target has."""
    return min(_MOST, -(-config_value(config, *LAYERS) // 2))


SIZES = {**layer_sizes(_MOST), "layers": Size(_layers), "mask_token": MASK_TOKEN}
"""As `Training.sizes`."""


def default_taps(layers: int) -> tuple[str, ...]:
    """Outputs of layers from the second to the last but two, evenly apart, as z-lab takes them; of a small target, of
    every other one up to the last."""
    if layers < _DEEP:
        return tuple(f"layers.{layer}.output" for layer in range((layers - 1) % 2, layers, 2))
    first, last = 1, layers - 3
    return tuple(f"layers.{round(first + index * (last - first) / (_MOST - 1))}.output" for index in range(_MOST))


def refused(dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]) -> tuple[str, str, str] | None:
    """As `Training.refusal`."""
    return refused_places(taps, "layers.2.output")
