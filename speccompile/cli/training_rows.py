"""Decisions of a training plan as rows of a table."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from speccompile.drafters import DRAFTING_METHODS

if TYPE_CHECKING:
    from speccompile.plan.training_plan import TrainingPlan
    from speccompile.recipe import Recipe

Row = tuple[str, str, str]

_ANSWERS = {"answers": "by", "prompts": "prompts", "temperature": "temperature", "sampled": "sampled",
            "max_new_tokens": "max_new_tokens", "batch_size": "batch_size", "endpoint": "endpoint",
            "endpoint_model": "model", "endpoint_key": "key"}  # fmt: skip
"""Plan field -> its key under `train.data.answers`."""
_FILES = 3
"""Maximum number of files to name; of more files, the row shows their number."""


def training_rows(recipe: "Recipe", plan: "TrainingPlan") -> list[Row]:
    """Return (key, value, source of the decision) of all settings that apply to this training."""
    rows: list[Row] = [("drafter.kind", plan.kind, recipe.source_of("drafter.kind"))]
    rows.append(("  output", str(plan.output), "recipe"))
    rows.append(("  work", str(plan.work), "default"))
    shape = {"begin": plan.begin, "depth": plan.depth, "vocabulary": plan.vocabulary or "(the target's)"}
    shape |= {"taps": ", ".join(plan.taps) or None} | {f"shape.{name}": size for name, size in plan.sizes.items()}
    rows += _of(recipe, "train", shape)
    rows += _data_rows(recipe, plan)
    rows += _of(recipe, "train.loss", _loss(plan))
    rows += _of(recipe, "train.schedule", asdict(plan.schedule))
    rows += _of(recipe, "train.evaluate", asdict(plan.evaluate))
    saved = {"every": plan.save_every, "keep": plan.keep, "dtype": plan.dtype, "dialect": plan.dialect}
    return [*rows, *_of(recipe, "train.save", saved), *_of(recipe, "train", {"seed": plan.seed})]


def _data_rows(recipe: "Recipe", plan: "TrainingPlan") -> list[Row]:
    found, files = asdict(plan.data), plan.data.files
    found["files"] = ", ".join(files) if len(files) <= _FILES else f"{len(files)} files, first {files[0]}"
    answers = {key: found.pop(name) for name, key in _ANSWERS.items() if name in found}
    if plan.data.answers == "given":
        answers = {"by": "given"}
    return [*_of(recipe, "train.data", found), *_of(recipe, "train.data.answers", answers)]


def _loss(plan: "TrainingPlan") -> dict[str, Any]:
    """Return the settings of the loss that have an effect."""
    loss, training = plan.loss, DRAFTING_METHODS[plan.kind].training
    by_depth = training is not None and not training.is_depth_independent
    meant = {"beta": loss.kind == "jsd", "hard": loss.kind != "ce", "share": loss.contexts == "mixed",
             "anchors": loss.anchors > 0, "depth_weights": by_depth,
             "decay": by_depth and loss.depth_weights == "decay"}  # fmt: skip
    return {name: value for name, value in asdict(loss).items() if meant.get(name, True)}


def _of(recipe: "Recipe", section: str, values: dict[str, Any]) -> list[Row]:
    """Return rows of the settings that are not None."""
    return [
        (f"{section}.{name}", _shown(value), recipe.source_of(f"{section}.{name}"))
        for name, value in values.items()
        if value is not None
    ]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
