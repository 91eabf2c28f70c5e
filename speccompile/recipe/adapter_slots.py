"""Decide the slots of adapters that are chosen at run time."""

from collections.abc import Iterable

from speccompile.plan.adapters import AdaptersPlan
from speccompile.plan.plan import EnginePlan
from speccompile.recipe.schema import Recipe

RANK = 16
SLOTS = 4


def decide_adapter_slots(recipe: Recipe, engines: Iterable[EnginePlan]) -> AdaptersPlan | None:
    """Return the slots of a recipe, None without the section. Raise RecipeError for engines that cannot take them, and
    for a module that is named twice."""
    written = recipe.adapters
    if written is None:
        return None
    for engine in engines:
        if engine.provider != "cpu":
            raise recipe.origin.refusal(
                "adapters", f"slots for adapters and the engine '{engine.name}', {engine.backend} on {engine.provider}",
                "engines of onnxruntime on cpu: others cannot choose adapters at run time",
                "remove the section adapters, or the engine; target.adapter merges one adapter for every engine",
            )  # fmt: skip
    for module in written.modules:
        if written.modules.count(module) > 1:
            raise recipe.origin.refusal("adapters.modules", f"'{module}' twice", "each module once", "remove one")
    return AdaptersPlan(written.rank or RANK, tuple(written.modules), written.slots or SLOTS)
