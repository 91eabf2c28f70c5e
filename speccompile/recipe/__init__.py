"""recipe.yaml -> Recipe -> Plan, without torch. `load_recipe` reads the file, `make_plan` decides every default.

In: a file and `--set` overrides. Out: a `plan.Plan`, or an error that names the location, received and expected values.
Imported by `compiler.build`, `measure`, `train` and `cli`; imports `drafters` (their sections and rules),
`compiler.checkpoints` (facts) and lower layers.
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
