"""recipe.yaml -> Recipe -> Plan, without torch. `load_recipe` reads what is written, `make_plan` decides the rest.

In: a file and `--set` overrides. Out: a `plan.Plan`, or one error that says what was received, expected and where.
Imported by `compiler.build`, `measure`, `train` and `cli`; imports `drafters` (their sections and rules),
`compiler.checkpoints` (facts) and what lies below.
"""

from speccompile.plan.plan import (
    CheckpointFacts,
    DrafterPlan,
    EnginePlan,
    ModelPlan,
    Plan,
    ProvePlan,
    TreePlan,
    VerifyPlan,
)
from speccompile.recipe.decide import make_plan
from speccompile.recipe.load import load_recipe
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
