"""Decide from `drafter.layers` which attention and MLP halves of the target's layers draft."""

from collections.abc import Sequence
from itertools import pairwise

from speccompile.plan.layers import LayersPlan
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.schema import LayersMapping

KEY = "drafter.layers"


def decide_layers(written: Sequence[int] | LayersMapping, origin: RecipeSource) -> LayersPlan:
    """Return the layers; one list selects both halves. Raise RecipeError for unordered lists and for no layer."""
    if not isinstance(written, LayersMapping):
        _check_order(written, KEY, origin)
        layers = LayersPlan(tuple(written), tuple(written))
    else:
        _check_order(written.attention or (), f"{KEY}.attention", origin)
        _check_order(written.mlp or (), f"{KEY}.mlp", origin)
        layers = LayersPlan(tuple(written.attention or ()), tuple(written.mlp or ()))
    if not layers.halves:
        received = "neither attention nor mlp" if isinstance(written, LayersMapping) else "[]"
        hint = "for example `layers: [0, 2]`, or `layers: {attention: [0, 1, 3], mlp: [0, 2]}`"
        raise origin.refusal(KEY, received, "one layer or more", hint)
    return layers


def _check_order(layers: Sequence[int], key: str, origin: RecipeSource) -> None:
    for before, layer in pairwise(layers):
        if layer <= before:
            received = f"layer {layer} twice" if layer == before else f"layer {layer} after layer {before}"
            raise origin.refusal(key, received, "each layer once, in ascending order", "sort the layers")


def check_layers(layers: LayersPlan, target: ModelPlan, origin: RecipeSource) -> list[str]:
    """Return notes on the layers. Raise RecipeError for layers that the target does not have."""
    count, is_split = target.facts.layers, layers.attention != layers.mlp
    if count is None:
        received, expected = f"{layers.to_json()}", "a target whose config.json says how many layers it has"
        raise origin.refusal(KEY, received, expected, "use another drafter.kind for this target")
    for name, its in (("attention", layers.attention), ("mlp", layers.mlp)):
        if its and its[-1] >= count:
            key, expected = f"{KEY}.{name}" if is_split else KEY, f"layers from 0 to {count - 1}, which the target has"
            raise origin.refusal(key, f"layer {its[-1]}", expected, f"remove layer {its[-1]}")
    if layers.halves == 2 * count:
        return [f"drafter.layers names all {count} layers: a draft costs as much as a token of the target"]
    return []
