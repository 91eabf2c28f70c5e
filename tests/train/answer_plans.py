"""Plans of training in which answers alone matter."""

from dataclasses import replace
from pathlib import Path

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.plan.training_plan import DataPlan, EvaluatePlan, LossPlan, SchedulePlan, TrainingPlan
from speccompile.recipe import ModelPlan

DATA = DataPlan(
    kind="prompts", files=(), answers="bundle", temperature=0.0, max_new_tokens=24, batch_size=4, endpoint=None,
    endpoint_model=None, length=96, held_out=0.1, features="online", packing="buckets", last_turn=False,
)  # fmt: skip
LOSS = LossPlan("fkl", 0.5, 0.0, "decay", 0.8, "target", 0.5, 1, None)
SCHEDULE = SchedulePlan(1, None, 1, 1, "adamw", 1e-3, None, 0.0, 0, 0.1, 1.0, "float32", False)
EVALUATE = EvaluatePlan(60.0, 1, 1, False, 1, 8)


def training_plan(folder: Path, *, seed: int = 0, max_length: int = 256, **data: object) -> TrainingPlan:
    """Return that of a target in `folder`; data: fields of its data that are otherwise."""
    files, facts = read_checkpoint(folder)
    return TrainingPlan(
        name="tiny", kind="model", target=ModelPlan("target", None, None, folder, files, "float32", facts),
        max_length=max_length, output=folder / "drafter", work=folder / "work", begin=None, sizes={}, vocabulary=None,
        taps=(), dialect="hf", depth=1, data=replace(DATA, **data), loss=LOSS, schedule=SCHEDULE, evaluate=EVALUATE,
        save_every=60.0, keep=1, dtype="float32", seed=seed,
    )  # fmt: skip
