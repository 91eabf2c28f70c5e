"""What a training leaves: a folder in a published dialect, with the weights of the best checkpoint and a report."""

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


def export_drafter(plan: TrainingPlan, learner: TrainableDrafter, report: Mapping[str, Any]) -> None:
    """Put the learner where the recipe names its drafter, whole or not at all; what a training left there goes."""
    output = plan.output
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f".{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with disk_errors(output):
            learner.save(part, getattr(torch, plan.dtype))
            said = {"made_by": MADE_BY, "version": __version__, **report}
            (part / REPORT).write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            for file in part.iterdir():  # safetensors are its user's alone, who need not be the one that serves
                if file.is_file() and file.stat().st_nlink == 1:
                    file.chmod((part / REPORT).stat().st_mode)
            sync(*(file for file in part.iterdir() if file.is_file()), part)
            replace_folder(part, output)
            sync(output.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
