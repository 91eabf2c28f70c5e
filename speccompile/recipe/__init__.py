"""recipe.yaml -> Recipe -> Plan, without torch. `load_recipe` reads what is written, `make_plan` decides the rest."""

from speccompile.recipe.decide import make_plan
from speccompile.recipe.load import load_recipe
from speccompile.recipe.plan import (
    CheckpointFacts,
    DrafterPlan,
    EnginePlan,
    ModelPlan,
    Plan,
    ProvePlan,
    TreePlan,
    VerifyPlan,
)
from speccompile.recipe.schema import Recipe

__all__ = [
    "CheckpointFacts",
    "DrafterPlan",
    "EnginePlan",
    "ModelPlan",
    "Plan",
    "ProvePlan",
    "Recipe",
    "TreePlan",
    "VerifyPlan",
    "load_recipe",
    "make_plan",
]
