"""Rotary frequencies that depend on the length of a sequence: how long texts may be, and what a plan says of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from speccompile.plan.plan import ModelPlan
from speccompile.recipe.cache_schema import Cache
from speccompile.recipe.cache_sizes import text_config
from speccompile.recipe.schema import Recipe

_ORIGINAL = "original_max_position_embeddings"
_KEY = "cache.long_factors"


def default_length(model: ModelPlan, longest: int) -> int:
    """Return the default of `cache.max_length`. longest: the default without longrope."""
    return min([longest, *_switches(model)])


def check_long_factors(recipe: Recipe, target: ModelPlan, max_length: int) -> None:
    """Raise RecipeError for texts beyond a target's original length that its longrope reads with other frequencies,
    unless the recipe takes those for all texts; and for a recipe that takes them where they change nothing."""
    asked, lengths = (recipe.cache or Cache()).long_factors, [n for n in _switches(target) if n < max_length]
    if lengths and not asked:
        original = min(lengths)
        raise recipe.origin.refusal(
            "cache.max_length", str(max_length),
            f"at most {original}: '{target.reference}' has longrope, which computes a text beyond {original} positions "
            "with other frequencies from its first token on, and cached keys have those of one length",
            f"set cache.max_length to {original}, or {_KEY} to true: all texts then have the factors of long ones, as "
            "in vLLM and llama.cpp",
        )  # fmt: skip
    if asked and not lengths:
        raise recipe.origin.refusal(
            _KEY, "true", f"it only with a target whose longrope switches before cache.max_length {max_length}",
            f"remove {_KEY}",
        )  # fmt: skip


def limit_hint(model: ModelPlan) -> str:
    """Return what a model's position scaling has to do with the limit of its positions, "" for nothing."""
    if any(_kind(each) == "dynamic" for each in _scalings(text_config(model))):
        return (
            "; its scaling 'dynamic' has other frequencies for every length beyond, and cached keys have those of one"
        )
    return ""


def rope_notes(model: ModelPlan, max_length: int) -> Iterator[str]:
    """Yield notes on caches that reach beyond the length that a model's position scaling begins with."""
    config = text_config(model)
    if lengths := [length for length in _switches(model) if length < max_length]:
        yield (
            f"'{model.reference}' has longrope: cache.max_length {max_length} is beyond {min(lengths)} positions, so "
            f"all texts have the factors of long ones, as in vLLM and llama.cpp; cache.max_length {min(lengths)} gives "
            "the others"
        )
    written = config.get("max_position_embeddings")
    for scaling in _scalings(config):
        says = scaling.get(_ORIGINAL) or config.get(_ORIGINAL)
        if _kind(scaling) == "linear" and not says and isinstance(written, int) and written < max_length:
            yield (
                f"'{model.reference}' divides its positions by {scaling.get('factor')}: cache.max_length {max_length} "
                f"is beyond the {written} that its config names, which are taken for those before it was scaled"
            )


def _switches(model: ModelPlan) -> Iterator[int]:
    """Yield the lengths beyond which a model's longrope has its second list of factors."""
    config = text_config(model)
    for scaling in _scalings(config):
        length = scaling.get(_ORIGINAL) or config.get(_ORIGINAL)
        same = scaling.get("long_factor") == scaling.get("short_factor")
        if _kind(scaling) in ("longrope", "su") and isinstance(length, int) and not same:
            yield length


def _scalings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the position scalings of a config: one, or one for each kind of layer."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return [rope, *(each for each in rope.values() if isinstance(each, dict))] if isinstance(rope, dict) else []


def _kind(scaling: dict[str, Any]) -> object:
    return scaling.get("rope_type") or scaling.get("type")
