"""Export of a training: a folder in a published dialect, with the weights of the best checkpoint and a report."""

import json
import shutil
from collections.abc import Mapping
from typing import Any

import torch

from speccompile import __version__
from speccompile.bundle.folders import replace_folder, sync
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.plan.training_plan import TrainingPlan
from speccompile.recipe.training_output import MADE_BY, REPORT
from speccompile.train.work import disk_errors


def export_drafter(plan: TrainingPlan, student: TrainableDrafter, report: Mapping[str, Any]) -> None:
    """Write the drafter atomically to the folder that the recipe names, and replace an earlier training's output."""
    output = plan.output
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f".{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with disk_errors(output):
            student.save(part, getattr(torch, plan.dtype))
            said = {"made_by": MADE_BY, "version": __version__, **report}
            (part / REPORT).write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            for file in part.iterdir():  # safetensors files are private to the user; a server may run as another one
                if file.is_file() and file.stat().st_nlink == 1:
                    file.chmod((part / REPORT).stat().st_mode)
            sync(*(file for file in part.iterdir() if file.is_file()), part)
            replace_folder(part, output)
            sync(output.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
