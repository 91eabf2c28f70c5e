"""Checkpoint of a drafter, a folder that training has written, as a recipe would compile it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.drafters import DRAFTING_METHODS, KINDS_WITH_WEIGHTS, module_of
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.recipe import Plan, load_recipe, make_plan
from speccompile.recipe.capabilities import DRAFTER_KEYS

_BESIDE = ("tree", "nodes", "then", "gate", "drafter")
"""Recipe keys that add to a chain: trees and cascades."""


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint to evaluate. recipe, overrides: see `load_recipe`. kind: kind of the drafter. folder: its weights.
    They replace those that the recipe names under `key`, for example `drafter.models.1`."""

    recipe: Path
    overrides: tuple[str, ...]
    kind: str
    folder: Path
    key: str = "drafter.model"

    def settings(self, tokens: int | None) -> tuple[str, ...]:
        """Return overrides that compile it as trained: greedy, exact, float32 on the CPU, batch size 1, no proof.
        tokens: length of a chain without early stopping; None for the recipe's shape."""
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
        """Return the plan of the recipe with these overrides. Raise the errors of `make_plan`."""
        return make_plan(load_recipe(self.recipe, self.settings(tokens)))

    def student(self, depth: int, model: nn.Module | None = None) -> TrainableDrafter:
        """Load the drafter with the rounded weights of the files. model: the eager target, if it is already loaded.
        Raise the errors of its kind for an incomplete folder."""
        context = drafter_context(open_round(self.plan(depth)).draft)
        found: TrainableDrafter = module_of(self.kind, "training").student(replace(context, model=model), depth)
        return found

    def _chain(self, tokens: int) -> Sequence[str]:
        settings = [f"drafter.{key}=null" for key in _BESIDE] + [f"drafter.tokens={tokens}"]
        if "threshold" in DRAFTER_KEYS[self.kind]:
            always = DRAFTING_METHODS[self.kind].threshold is not None  # else early stopping is off by default
            settings.append("drafter.threshold=0" if always else "drafter.threshold=null")
        return settings
