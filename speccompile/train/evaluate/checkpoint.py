"""A checkpoint of a drafter, as a recipe would compile it: the folder that training has written, and no other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from speccompile.compiler.build.modules import drafter_context
from speccompile.drafters import DRAFTING_METHODS, KINDS_WITH_WEIGHTS, module_of
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.recipe import Plan, load_recipe, make_plan
from speccompile.recipe.capabilities import DRAFTER_KEYS

_BESIDE = ("tree", "nodes", "then", "gate", "drafter")
"""Keys that make more of a drafter's tokens than a chain."""


@dataclass(frozen=True)
class Checkpoint:
    """recipe: the file, and overrides, as of `load_recipe`. kind: of the drafter. folder: of its weights, which are
    judged in the place of those that the recipe names under `key`, for example `drafter.models.1`."""

    recipe: Path
    overrides: tuple[str, ...]
    kind: str
    folder: Path
    key: str = "drafter.model"

    def settings(self, tokens: int | None) -> tuple[str, ...]:
        """Overrides that compile it as it was trained: greedy, exact, in float32 on the processor, one row, no proof.
        tokens: of a chain in which every draft is made, None for the shape that the recipe has."""
        precision = "{target: float32, drafter: float32}" if self.kind in KINDS_WITH_WEIGHTS else "{target: float32}"
        shape = () if tokens is None else self._chain(tokens)
        return (
            *self.overrides,
            f"{self.key}={json.dumps(str(self.folder.resolve()))}",
            "drafter.revision=null", "drafter.sample=null", f"drafter.kind={self.kind}", *shape,
            "decoding=greedy", "verify={method: exact}", "prove=null", "cache.batch_size=1",
            "engines=[{backend: onnxruntime, provider: cpu}]", f"precision={precision}",
        )  # fmt: skip

    def plan(self, tokens: int | None) -> Plan:
        """As `make_plan`, and raises what it raises."""
        return make_plan(load_recipe(self.recipe, self.settings(tokens)))

    def learner(self, depth: int, model: nn.Module | None = None) -> TrainableDrafter:
        """It, loaded back: what is judged has the weights of the files, rounded as they are. model: the target in eager
        torch, where it is loaded anyway. Raises what its family raises for a folder that is not whole."""
        site = drafter_context(self.plan(depth))
        found: TrainableDrafter = module_of(self.kind, "training").learner(replace(site, model=model), depth)
        return found

    def _chain(self, tokens: int) -> Sequence[str]:
        settings = [f"drafter.{key}=null" for key in _BESIDE] + [f"drafter.tokens={tokens}"]
        if "threshold" in DRAFTER_KEYS[self.kind]:
            always = (
                DRAFTING_METHODS[self.kind].threshold is not None
            )  # else it ends early only where the recipe says so
            settings.append("drafter.threshold=0" if always else "drafter.threshold=null")
        return settings
