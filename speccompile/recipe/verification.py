"""Decide the acceptance rule from the section `verify`."""

from collections.abc import Mapping

from speccompile.plan.plan import VerifyPlan
from speccompile.plan.recipe_source import inapplicable_key
from speccompile.recipe.capabilities import EXACT_METHODS, VERIFY_KEYS
from speccompile.recipe.schema import Recipe, Verify

METHOD = "exact"

PARAMETERS: Mapping[str, float] = {
    "epsilon": 0.09,  # Medusa's code (Cai et al. 2024)
    "delta": 0.3,
    "lenience": 0.5,
    "k": 3,
    "gap": 2.0,  # nats
    "fallback": 0.5,
    "rollback": 3.0,  # nats
}
"""Defaults of the parameters of approximate methods."""


def verify_method(recipe: Recipe) -> str:
    return (recipe.verify or Verify()).method or METHOD


def decide_verification(recipe: Recipe) -> VerifyPlan:
    """Return the acceptance rule of a known method. Raise RecipeError for keys that do not apply to it."""
    written, method = recipe.verify or Verify(), verify_method(recipe)
    parameters = {}
    for name, default in PARAMETERS.items():
        value = getattr(written, name)
        if name in VERIFY_KEYS[method]:
            parameters[name] = default if value is None else value
        elif value is not None:
            methods = [other for other, names in VERIFY_KEYS.items() if name in names]
            raise inapplicable_key(f"verify.{name}", "method", "verify.method", method, methods, recipe.origin)
    return VerifyPlan(method, method in EXACT_METHODS, parameters)
