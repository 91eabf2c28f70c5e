"""The work folder of a training: what is under way there, and whether this run may go on with it.

<work>/plan.json      what is under way
       data/          texts and prompts, tokenised; features on request
       answers/       the target's own
       begin/         the new drafter, before it has learnt
       checkpoints/   where it can go on from
       judged/        the checkpoint that is being judged, and what is built of it
       curves.jsonl   and curves.html
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
"""Of the schedule: a training may go on for longer than planned, and where it warms up by a share, that grows."""

_SCORED = ("depth", "prompts", "max_new_tokens")
"""Of the evaluation: what a score depends on."""


def check_resume(work: Path, *, resume: bool, restart: bool) -> None:
    """Raises UsageError where the user must say whether a training goes on, and for nothing to go on with."""
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
    """Make the folder, without what an earlier training learnt where it is to begin anew: data and answers stay."""
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
    """In which a disk that is full is a TrainingError, whichever library met it. folder: what is written."""
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
    """What must be the same for a training to go on: all that decides what is learnt, but not for how long, and by what
    the best checkpoint is chosen, as scores of other rounds are no measure of its own.

    data: key of the corpus.
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
