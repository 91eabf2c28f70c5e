"""Where a training writes: the folder of the drafter, and the one of its work. What lies there is not overwritten."""

import json
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError
from speccompile.recipe.plan import ModelPlan
from speccompile.recipe.refusal import Origin

REPORT = "training.json"
"""Beside the weights: what was done, and the figures."""
MADE_BY = "speccompile train"
STATE = "plan.json"
"""In the work folder: the plan of what is under way."""


def check_output(output: Path, begin: Path | None, target: ModelPlan, origin: Origin) -> None:
    """Raises RecipeError for a folder that holds something else than what a training left, and for one that is read."""
    resolved = output.resolve()
    for what, folder in (("train.begin", begin), ("target.model", target.folder)):
        if folder is not None and folder.resolve() == resolved:
            raise origin.refusal(
                "drafter.model", f"{output}, which is read at {what}", "a folder of its own",
                "name another folder in drafter.model: that of the trained drafter",
            )  # fmt: skip
    if output.exists() and not (output.is_dir() and (is_ours(output) or not any(output.iterdir()))):
        held = "a file" if output.is_file() else "a folder that holds something else"
        raise origin.refusal(
            "drafter.model", f"{output}, {held}", f"a new folder, or one that {MADE_BY!r} left",
            "remove it, or name another folder in drafter.model",
        )  # fmt: skip


def is_ours(output: Path) -> bool:
    """Whether a training left this folder."""
    report = read_json(output / REPORT)
    return report is not None and report.get("made_by") == MADE_BY


def check_work(work: Path) -> None:
    """Raises UsageError for a folder that holds something else than a training's work."""
    if work.is_dir() and any(work.iterdir()) and read_json(work / STATE) is None:
        found = "a folder that holds something else"
    elif work.exists() and not work.is_dir():
        found = "a file"
    else:
        return
    raise UsageError(
        f"--work: received '{work}', {found}, expected a new folder, or one of a training", hint="give another --work"
    )


def read_json(file: Path) -> dict[str, Any] | None:
    """The object in a file, None where there is none."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
