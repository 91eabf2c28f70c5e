"""Work folder of a training, and the check whether a run may resume it.

<work>/plan.json      plan of the training
       data/          tokenized samples and prompts; features on request
       answers/       responses of the target
       begin/         the new drafter before training
       checkpoints/   checkpoints to resume from
       judged/        the checkpoint under evaluation, and its bundle
       curves.jsonl   metrics, and curves.html
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from speccompile.bundle.folders import write_atomically
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import TrainingError, UsageError
from speccompile.machine.resource_errors import is_disk_full
from speccompile.plan.training_plan import TrainingPlan
from speccompile.recipe.resources import gigabytes
from speccompile.recipe.training_output import STATE

DATA, ANSWERS, BEGIN, CHECKPOINTS, JUDGED = "data", "answers", "begin", "checkpoints", "judged"

_BUDGET = ("steps", "seconds", "warmup")
"""Keys of the schedule that may change on resume: a training may run longer, and a relative warmup then grows."""

_SCORED = ("depth", "prompts", "max_new_tokens")
"""Keys of the evaluation on which a score depends."""


def check_resume(work: Path, *, resume: bool, restart: bool) -> None:
    """Raise UsageError if the user must choose between resume and restart, or if there is nothing to resume."""
    if resume and restart:
        raise UsageError("received --resume and --restart, expected one of the two", hint="leave one out")
    if resume and not (work / STATE).is_file():
        raise UsageError(
            f"--resume: received '{work}', where no training is under way, expected the folder of one",
            hint="leave --resume out to begin, or give the --work of the training",
        )
    if not resume and not restart and any((work / CHECKPOINTS).glob("step-*")):
        raise UsageError(
            f"received '{work}', where a training is under way or done, expected a new folder",
            hint="go on with --resume, begin anew with --restart, or give another --work",
        )


def open_work(plan: TrainingPlan, *, restart: bool) -> None:
    """Create the folder. restart: remove an earlier training's checkpoints and curves; data and responses stay."""
    plan.work.mkdir(parents=True, exist_ok=True)
    if restart:
        for name in (CHECKPOINTS, BEGIN, JUDGED):
            shutil.rmtree(plan.work / name, ignore_errors=True)
        for file in plan.work.glob("curves.*"):
            file.unlink()
    shutil.rmtree(plan.work / JUDGED, ignore_errors=True)
    write_atomically(plan.work / STATE, canonical_json(plan.to_json()))


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Convert disk-full errors of any library to TrainingError. folder: the folder that is written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not is_disk_full(error):
            raise
        raise TrainingError(
            f"{folder}: the disk is full: {gigabytes(shutil.disk_usage(folder.parent).free)} are free",
            hint="free some disk space, and go on with --resume: what was learnt is in the checkpoints",
        ) from error


def run_key(plan: TrainingPlan, data: str) -> dict[str, Any]:
    """Return the key that must be unchanged to resume: everything that decides the weights except the budget, and the
    evaluation's settings, because scores must stay comparable.

    data: key of the dataset.
    """
    schedule = {key: value for key, value in vars(plan.schedule).items() if key not in _BUDGET}
    return {
        "target": plan.target.reference,
        "drafter": {
            "kind": plan.kind,
            "begin": None if plan.begin is None else str(plan.begin.resolve()),
            "sizes": dict(plan.sizes),
            "vocabulary": plan.vocabulary,
            "taps": list(plan.taps),
            "dialect": plan.dialect,
            "depth": plan.depth,
        },
        "data": data,
        "loss": dict(vars(plan.loss)),
        "schedule": schedule,
        "evaluate": {key: getattr(plan.evaluate, key) for key in _SCORED},
        "seed": plan.seed,
    }
