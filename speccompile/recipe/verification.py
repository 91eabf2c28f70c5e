"""Decide the acceptance rule from the section `verify`."""

from speccompile.plan.plan import VerifyPlan
from speccompile.plan.recipe_source import inapplicable_key
from speccompile.recipe.acceptance_methods import ACCEPTANCE_METHODS, PARAMETERS
from speccompile.recipe.schema import Recipe, Verify

METHOD = "exact"


def verify_method(recipe: Recipe) -> str:
    return (recipe.verify or Verify()).method or METHOD


def decide_verification(recipe: Recipe) -> VerifyPlan:
    """Return the acceptance rule of a known method. Raise RecipeError for keys that do not apply to it."""
    written, method = recipe.verify or Verify(), verify_method(recipe)
    parameters = {}
    for name, parameter in PARAMETERS.items():
        value = getattr(written, name)
        if name in ACCEPTANCE_METHODS[method].parameters:
            parameters[name] = parameter.default if value is None else value
        elif value is not None:
            methods = [other for other, each in ACCEPTANCE_METHODS.items() if name in each.parameters]
            raise inapplicable_key(f"verify.{name}", "method", "verify.method", method, methods, recipe.origin)
    return VerifyPlan(method, ACCEPTANCE_METHODS[method].is_exact, parameters)
