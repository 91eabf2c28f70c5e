"""Taps of a new EAGLE-3 head, and their ids in each dialect.

Boundary b is the residual stream after b layers, 0 the embedding. speculators and vLLM write boundaries; SpecForge's
dialect, which SGLang reads, writes the layer whose output it is: b - 1.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from speccompile.drafters.eagle3.dialects import SPECULATORS

IDS = "eagle_aux_hidden_state_layer_ids"
_DEEP = 7
"""Minimum number of target layers for which the published rule gives three different boundaries."""


def default_taps(layers: int) -> tuple[str, ...]:
    """Return taps after a low, a middle and a high layer, as published; for a small target, after its second to fourth
    layer."""
    boundaries = (2, layers // 2, layers - 3) if layers >= _DEEP else range(min(2, layers), min(layers, 4) + 1)
    return tuple(f"layers.{boundary - 1}.output" for boundary in boundaries)


def boundary(tap: str) -> int | None:
    """Return the index of a tap's layer boundary, or None for another tap."""
    kind, _, rest = tap.partition(".")
    layer, _, side = rest.partition(".")
    return int(layer) + (side == "output") if kind == "layers" else None


def boundaries(taps: Iterable[str]) -> list[int]:
    """Return the boundaries of taps; the plan refuses other taps."""
    found = [boundary(tap) for tap in taps]
    assert None not in found, "others are refused"
    return [each for each in found if each is not None]


def says_ids(config: Mapping[str, Any]) -> bool:
    """Return whether a config names the head's taps, or says that it reads the input of the target's output head."""
    nested = config.get("eagle_config") or {}
    keys = (config.get(IDS), config.get("target_layer_ids"), nested.get(IDS))
    return any(each is not None for each in keys) or nested.get("use_aux_hidden_state") is False


def with_ids(config: dict[str, Any], dialect: str, taps: Iterable[str]) -> dict[str, Any]:
    """Return the config with the ids of these taps in the dialect's convention; a config with ids stays unchanged."""
    if says_ids(config):
        return config
    if dialect == SPECULATORS:
        return config | {IDS: boundaries(taps)}
    ids = [each - 1 for each in boundaries(taps)]
    return config | {"eagle_config": (config.get("eagle_config") or {}) | {IDS: ids, "use_aux_hidden_state": True}}


def refused_places(taps: tuple[str, ...], example: str) -> tuple[str, str, str] | None:
    """Return the refusal of taps that are not distinct layer boundaries, or None; see `Training.refusal`."""
    boundaries = [boundary(tap) for tap in taps]
    found = next((tap for tap, each in zip(taps, boundaries, strict=True) if each is None), None)
    if found is not None:
        return "taps", f"'{found}'", f"places between layers, such as {example}"
    if len(set(boundaries)) < len(boundaries):
        return "taps", ", ".join(taps), "places that differ: layers.2.input and layers.1.output are one"
    return None


def refused(dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]) -> tuple[str, str, str] | None:
    """See `Training.refusal`."""
    found = refused_places(taps, "layers.2.input")
    if found is not None or dialect == SPECULATORS:
        return found
    if boundary(taps[0]) in (0, 1):
        expected = f"a first tap behind two layers or more in dialect {dialect}: SGLang shifts all ids by one where"
        return "taps", f"{taps[0]} first", f"{expected} the first is 1; dialect {SPECULATORS} has no such rule"
    if sizes["layers"] != 1:
        return "shape.layers", str(sizes["layers"]), f"1, which is all that dialect {dialect} has room for"
    return None
