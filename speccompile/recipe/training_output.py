"""Check the folders that a training writes, of the drafter and of its work: other content is never overwritten."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError
from speccompile.plan.recipe_source import RecipeSource

REPORT = "training.json"
"""Report of the training and its results, next to the weights."""
MADE_BY = "speccompile train"
STATE = "plan.json"
"""Plan of the current training, in the work folder."""


def check_output(output: Path, read: Mapping[str, Path | None], work: Path, origin: RecipeSource) -> None:
    """Raise RecipeError for an output folder with other content than a training's output, or that is also an input,
    contains the work folder or lies in it, or cannot be created. read: key of the recipe -> input folder."""
    resolved, works = output.resolve(), work.resolve()
    for what, folder in read.items():
        if folder is not None and folder.resolve() == resolved:
            raise origin.refusal(
                "drafter.model", f"{output}, which is read at {what}", "a folder of its own",
                "name another folder in drafter.model: that of the trained drafter",
            )  # fmt: skip
    if resolved.is_relative_to(works) or works.is_relative_to(resolved):
        raise origin.refusal(
            "drafter.model", f"{output}, and {work} for the work", "two folders, neither in the other",
            "name another folder in drafter.model, or give another --work",
        )  # fmt: skip
    if not output.exists() and (output.is_symlink() or not _can_hold(output)):
        raise origin.refusal(
            "drafter.model", f"{output}, where no folder can be", "a new folder, below one that is there",
            "name another folder in drafter.model",
        )  # fmt: skip
    if output.is_dir() and not os.access(output.parent, os.W_OK):
        raise origin.refusal(
            "drafter.model", f"{output}, in a folder that cannot be written", "one that can be replaced",
            "name another folder in drafter.model",
        )  # fmt: skip
    if output.exists() and not (output.is_dir() and (is_training_output(output) or not any(output.iterdir()))):
        held = "a file" if output.is_file() else "a folder that holds something else"
        raise origin.refusal(
            "drafter.model", f"{output}, {held}", f"a new folder, or one that {MADE_BY!r} exported",
            "remove it, or name another folder in drafter.model",
        )  # fmt: skip


def _can_hold(path: Path) -> bool:
    """Return whether the nearest existing ancestor of a path is a folder that may be written."""
    nearest = next(each for each in path.absolute().parents if os.path.lexists(each))
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def is_training_output(output: Path) -> bool:
    """Return whether a training wrote this folder."""
    report = read_json(output / REPORT)
    return report is not None and report.get("made_by") == MADE_BY


def check_work(work: Path) -> None:
    """Raise UsageError for a work folder with other content than a training's work, or that cannot be created."""
    if work.is_dir() and any(work.iterdir()) and read_json(work / STATE) is None:
        found = "a folder that holds something else"
    elif work.exists() and not work.is_dir():
        found = "a file"
    elif not (os.access(work, os.W_OK) if work.is_dir() else _can_hold(work)):
        found = "where nothing can be written"
    else:
        return
    raise UsageError(
        f"--work: received '{work}', {found}, expected a new folder, or one of a training", hint="give another --work"
    )


def read_json(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None without one."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
