"""`speccompile train`."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.exit_codes import Interrupted
from speccompile.progress import loading_torch

if TYPE_CHECKING:
    from speccompile.plan.training_plan import TrainingPlan
    from speccompile.train.run import Report


@click.command("train")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in train.seed=1.")
@click.option("--work", type=click.Path(path_type=Path), help="Folder of data and checkpoints; build/<name>-train.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint of the work folder.")
@click.option("--restart", is_flag=True, help="Begin anew; data and answers that are there are used again.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads; all cores by default.")
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard's files as well, into the work folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Write the curves to this page as well.")
def command(
    recipe: Path,
    overrides: tuple[str, ...],
    work: Path | None,
    resume: bool,
    restart: bool,
    threads: int | None,
    tensorboard: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Train the drafter of RECIPE on the texts that its section `train` names.

    RECIPE is a recipe.yaml or the folder that holds one. The drafter is exported to `drafter.model`, in a published
    dialect, so that `speccompile build RECIPE` compiles it. `speccompile plan RECIPE` shows all that is decided, and
    what is refused is refused before any work. It needs the extra [train].

    \b
    A training goes on after an interruption, whatever interrupted it:
      speccompile train RECIPE --resume
    The work folder has its curves: curves.jsonl, and curves.html to look at,
    which every evaluation writes anew. --html puts that page elsewhere at the
    end, also at that of an interrupted training.

    \b
    The smallest section, in which everything else is decided:
      train:
        data: {kind: text, files: [docs]}
        schedule: {seconds: 600}

    \b
    The JSON object has the keys
      recipe    the file
      kind      of the drafter
      output    the folder of the exported drafter
      steps     how many were done
      seconds   that they took, without evaluation
      best      {step, simulated, compiled}: the checkpoint that was exported, and
                its new tokens a round, the bonus token included: over the
                target's own text, and compiled and run (null where it was not)
      begun     the same of what was gone on from; null for a new drafter
      curves    the file of the curves
      data      {documents, texts, tokens, learnt, cut, skipped}: read and kept,
                {learnt_from, held_out}: texts of each side
      answers   {given, done, failed, skipped}; {} where the data has them

    \b
    Several processes, on one machine or more:
      accelerate launch --cpu --num_processes 2 -m speccompile train RECIPE
      accelerate launch --multi_gpu -m speccompile train RECIPE
      accelerate launch --use_fsdp --fsdp_version 2 -m speccompile train RECIPE
    They share a step's texts; the losses are those of one process.

    \b
    Examples:
      speccompile train recipes/mine
      speccompile train recipes/mine --set train.schedule.seconds=3600
      speccompile train recipes/mine --set train.begin=demo/drafter --json
    """
    _check_installed(tensorboard=tensorboard)
    from speccompile.measure.bench.html import check_page
    from speccompile.recipe import load_recipe
    from speccompile.recipe.training import plan_training
    from speccompile.train.work import check_resume

    if html is not None:
        check_page(html)
    written = load_recipe(recipe, overrides)
    plan = plan_training(written, work)
    check_resume(plan.work, resume=resume, restart=restart)
    with loading_torch():
        from speccompile.train.run import Source, run_training

    if threads is not None:
        _set_threads(threads)
    source = Source.of(written, overrides, plan)
    try:
        report = run_training(plan, source, restart=restart, tensorboard=tensorboard)
    except KeyboardInterrupt as interrupt:
        words = ["speccompile", "train", str(recipe), *(word for each in overrides for word in ("--set", each))]
        again = shlex.join([*words, *(["--work", str(work)] if work else []), "--resume"])
        _write_page(plan, html)
        if (kept := _kept(plan.work)) is None:
            raise
        raise Interrupted(f"{kept}, to go on with it: {again}") from interrupt
    if report is not None:  # only the first process has a report
        click.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False) if as_json else _lines(report))
        _write_page(plan, html)


def _kept(work: Path) -> str | None:
    """Return what an interrupted training keeps, None if it had not begun."""
    from speccompile.recipe.training_output import STATE
    from speccompile.train.work import CHECKPOINTS

    if any((work / CHECKPOINTS).glob("step-*")):
        return "what the last checkpoint has is kept"
    return "the data and answers so far are kept" if (work / STATE).is_file() else None


def _write_page(plan: "TrainingPlan", html: Path | None) -> None:
    """Write the page of the curves so far, if it is wanted and there are any."""
    from speccompile.measure.bench.html import write_html
    from speccompile.train.curves import CURVES, read_curves
    from speccompile.train.curves_page import make_page

    if html is not None and (lines := read_curves(plan.work / CURVES)):
        write_html(make_page(f"{plan.name}: {plan.kind}", lines), html)


def _check_installed(*, tensorboard: bool) -> None:
    """Raise MissingPackageError, before any work, if a package is missing that training needs."""
    from importlib.util import find_spec

    from speccompile.extras import missing_package, require

    require("compile", "train", purpose="training")
    if tensorboard and find_spec("tensorboard") is None:
        instead = "leave it out: curves.jsonl and curves.html have the same"
        raise missing_package("tensorboard", purpose="--tensorboard", instead=instead)


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _lines(report: "Report") -> str:
    best, begun = report.best, report.begun
    compiled = "" if best.get("compiled") is None else f", {best['compiled']:.3f} compiled and run"
    before = "" if begun is None else f"; before {_rounds(begun)}"
    return "\n".join(
        [
            f"{report.output}: {report.kind}, {report.steps} steps in {report.seconds:.0f} s",
            f"best at step {best['step']}: {_rounds(best)} tokens a round simulated{compiled}{before}",
            f"curves: {report.curves}",
        ]
    )


def _rounds(found: Mapping[str, Any]) -> str:
    """Return tokens per round as text; "no" if every response ended before a round."""
    return "no" if found["simulated"] is None else f"{found['simulated']:.3f}"
