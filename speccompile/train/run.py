"""Run a training from plan to exported folder: responses, data, initial drafter, steps, best checkpoint."""

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoTokenizer

from speccompile.compiler.models.load import load_model, quiet_transformers
from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.plan.training_plan import GIVEN, TrainingPlan
from speccompile.progress import LOGGER, log_step, quiet
from speccompile.recipe import Recipe
from speccompile.train.answers import make_answers
from speccompile.train.answers.store import account
from speccompile.train.checkpoints import check_same, load_student, read_state
from speccompile.train.col_bt import unsolved_texts
from speccompile.train.curves import CURVES, MetricsLog, read_curves
from speccompile.train.data.corpus import Batch, Dataset
from speccompile.train.data.data_cache import about
from speccompile.train.data.documents import Prompt
from speccompile.train.data.features import CachedFeatureTeacher, write_features
from speccompile.train.data.prepare import check_sides, find_sounds, prepare, prepare_prompts
from speccompile.train.data.print_sample import print_sample
from speccompile.train.data.sounds import NUMBERS, Sounds
from speccompile.train.evaluate.checkpoint import Checkpoint
from speccompile.train.evaluator import Evaluator
from speccompile.train.export import export_drafter
from speccompile.train.initial_drafter import initial_drafter_folder
from speccompile.train.loop import EvaluationResult, EvaluationSchedule, Saving, Trained, train
from speccompile.train.objective import Objective, WeightedLoss
from speccompile.train.on_policy import is_on_policy_step, sample_on_policy
from speccompile.train.processes import Processes
from speccompile.train.teacher import Teacher, answer_start
from speccompile.train.work import ANSWERS, CHECKPOINTS, DATA, JUDGED, disk_errors, open_work, run_key


@dataclass(frozen=True)
class Source:
    """Recipe of a training. recipe, overrides: see `load_recipe`; alone: overrides that replace several draft models by
    one."""

    recipe: Path
    overrides: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, overrides: tuple[str, ...], plan: TrainingPlan) -> "Source":
        several = recipe.drafter is not None and recipe.drafter.models is not None
        drafter = json.dumps({"kind": plan.kind, "tokens": plan.evaluate.depth})
        return cls(recipe.origin.path, overrides, (f"drafter={drafter}",) if several else ())

    def checkpoint(self, plan: TrainingPlan, folder: Path) -> Checkpoint:
        """Return a checkpoint whose folder replaces the recipe's drafter."""
        return Checkpoint(self.recipe, (*self.overrides, *self.alone), plan.kind, folder)


@dataclass(frozen=True)
class Report:
    """Report of a training. begun: evaluation of the initial drafter, None for a new one. best: evaluation of the
    exported step. Both have tokens per round, simulated and compiled."""

    recipe: str
    kind: str
    output: str
    steps: int
    seconds: float
    begun: Mapping[str, Any] | None
    best: Mapping[str, Any]
    curves: str
    data: Mapping[str, Any]
    answers: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_training(
    plan: TrainingPlan, source: Source, *, restart: bool = False, tensorboard: bool = False
) -> Report | None:
    """Train by `plan`, resume from the work folder, and export to `plan.output`.

    All processes of a launch make the same call; only the first writes, and returns the report. Raise the errors of the
    modules of `train`.
    """
    quiet_transformers()
    processes = Processes()
    if not processes.is_first:
        LOGGER.setLevel(logging.WARNING)  # only the first process logs
    if not restart:
        processes.run_on_main(lambda: _check_same(plan))
    processes.run_on_main(lambda: open_work(plan, restart=restart))
    tokenizer = _tokenizer(plan)
    learnt, held_out, answers = _data(plan, tokenizer, processes)
    sounds = find_sounds(plan)
    if processes.is_first:
        LOGGER.info("%s", print_sample(learnt, tokenizer, named=0 if sounds is None else NUMBERS))
    model = processes.put_target(load_model(plan.target.folder, plan.max_length))
    if plan.loss.drop is not None:
        first = source.checkpoint(plan, Path(plan.loss.drop)).student(1, model)
        learnt = unsolved_texts(learnt, first.to(processes.device), plan.loss.drop)
    begun = processes.run_on_main(lambda: initial_drafter_folder(plan, model, learnt))
    run = _TrainingRun(plan, source, processes, model, learnt, held_out, begun, sounds)
    trained = run.train(tensorboard=tensorboard)
    found: list[Report] = []
    processes.run_on_main(lambda: found.append(run.export(trained, answers)))
    return found[0] if found else None


def _check_same(plan: TrainingPlan) -> None:
    """Raise RecipeError if the work folder belongs to another training, before its data or initial drafter are used.
    The data is compared later, after it is read."""
    for last in sorted((plan.work / CHECKPOINTS).glob("step-*"))[-1:]:
        found = read_state(last).plan
        check_same(found, run_key(plan, found["data"]), last)


def _tokenizer(plan: TrainingPlan) -> Any:
    """Return the target's tokenizer with the recipe's chat template, or None if the target has no tokenizer."""
    if not plan.target.facts.tokenizer:
        return None
    tokenizer = AutoTokenizer.from_pretrained(plan.target.folder, local_files_only=True)
    if plan.data.template is not None:
        tokenizer.chat_template = plan.data.template.read_text(encoding="utf-8")
    return tokenizer


def _data(plan: TrainingPlan, tokenizer: Any, processes: Processes) -> tuple[Dataset, Dataset, dict[str, int]]:
    """Return the training set, the held-out set, and the counts of responses. The first process makes them."""
    answers, folder = None, plan.work / DATA
    counts: dict[str, int] = {}
    if plan.data.answers != GIVEN:
        answers = processes.run_on_main(lambda: _answers(plan, tokenizer, folder))
        counts = dict(account(answers))
        counts = {"given": sum(counts.values()), **counts}
    found: list[tuple[Dataset, Dataset]] = []
    processes.run_on_main(lambda: found.append(prepare(plan, tokenizer, folder, answers)))
    learnt, held_out = found[0] if found else prepare(plan, tokenizer, folder, answers)
    return learnt, held_out, counts


def _answers(plan: TrainingPlan, tokenizer: Any, folder: Path) -> Path:
    asked: Sequence[Prompt] = prepare_prompts(plan, tokenizer, folder)
    if plan.data.prompts is not None and plan.data.prompts < len(asked):
        drawn = np.random.default_rng(plan.seed).permutation(len(asked))[: plan.data.prompts]
        asked = [asked[number] for number in sorted(drawn.tolist())]
    check_sides(plan, asked)
    return make_answers(plan, asked, plan.work / ANSWERS, sounds=find_sounds(plan))


class _TrainingRun:
    """Running training: the drafter, its data and its evaluator."""

    def __init__(
        self, plan: TrainingPlan, source: Source, processes: Processes, model: nn.Module, learnt: Dataset,
        held_out: Dataset, begun: Path, sounds: Sounds | None,
    ) -> None:  # fmt: skip
        self.plan, self.source, self.processes, self.model = plan, source, processes, model
        self.corpus, self.held_out, self.begun = learnt, held_out, begun
        self.student = self._student()
        self.teacher = Teacher(model, self.student.taps, answer_start(plan.target), sounds)
        self.kept = self._kept(learnt)
        self.objective = Objective(plan.loss, self.student.depth)
        self.evaluator, self.began = Evaluator(plan, model, held_out, sounds), time.perf_counter()

    def _student(self) -> TrainableDrafter:
        """Return the drafter with its initial weights, on this process's device."""
        found = self.source.checkpoint(self.plan, self.begun).student(self.plan.depth, self.model)
        return found.to(self.processes.device)

    def _kept(self, corpus: Dataset) -> CachedFeatureTeacher | None:
        """Write the target's features to the disk and return their reader; None if they are computed online."""
        if self.plan.data.features != "disk":
            return None
        folder = self.plan.work / DATA
        rank, count = self.processes.rank, self.processes.count
        with self.processes.whole_target():
            written = write_features(self.plan, self.model, corpus, folder, "features", rank, count)
            self.processes.all_gather(None)  # wait until all processes have written
        return CachedFeatureTeacher(self.plan, self.model, corpus, written)

    def train(self, *, tensorboard: bool) -> Trained:
        plan = self.plan
        saving = Saving(plan.work / CHECKPOINTS, plan.save_every, plan.keep, run_key(plan, self.corpus.key))
        curves = None
        if self.processes.is_first:
            curves = MetricsLog(plan.work, f"{plan.name}: {plan.kind}", tensorboard=tensorboard)
        return train(
            self.processes, self.student, self.weigh, plan.schedule, saving,
            seed=plan.seed, samples=self.samples, curves=curves,
            evaluation=EvaluationSchedule(self.evaluate, plan.evaluate.every, first=plan.begin is not None),
        )  # fmt: skip

    def samples(self, step: int, part: int, parts: int) -> tuple[int, ...]:
        """Return the numbers of the samples of a part."""
        return self._batch(step, part, parts).samples

    def _batch(self, step: int, part: int, parts: int) -> Batch:
        return self.corpus.batch(self.plan.seed, step, self.plan.schedule.batch_size, part, parts)

    def weigh(self, step: int, part: int, parts: int) -> WeightedLoss:
        """Return the loss of a part of a step's batch."""
        return self.objective(self.student, self._seen(self._batch(step, part, parts), step), self.plan.seed, step)

    def _seen(self, batch: Batch, step: int) -> TeacherBatch:
        """Return the target's outputs for the data, or for the drafter's continuations of its prompts."""
        device = self.processes.device
        batch = Batch(
            batch.tokens.to(device), batch.attention_mask.to(device), batch.loss_mask.to(device), batch.samples
        )
        texts = batch.tokens, batch.attention_mask, batch.loss_mask
        if is_on_policy_step(self.plan.loss, self.plan.seed, step):
            ends = self.plan.target.facts.eos_token_ids
            return self.teacher.forward(*sample_on_policy(self.student, *texts, ends, self.plan.seed, step))
        return self.teacher.forward(*texts) if self.kept is None else self.kept.read(batch)

    def evaluate(self, number: int) -> EvaluationResult:
        """Evaluate the drafter after `number` steps, as it would be exported."""
        folder = self.plan.work / JUDGED / f"step-{number}"
        shutil.rmtree(folder.parent, ignore_errors=True)
        try:
            with disk_errors(folder.parent):
                self.student.save(folder, getattr(torch, self.plan.dtype))
            with log_step(f"evaluating step {number}"), quiet():  # a build logs much
                seconds = time.perf_counter() - self.began
                return self.evaluator.evaluate(self.source.checkpoint(self.plan, folder), number, seconds)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)

    def found(self, number: int, score: float | None = None) -> dict[str, Any]:
        """Return the evaluation of a step; only its score if curves.jsonl was deleted."""
        lines = read_curves(self.plan.work / CURVES)
        own = (line["figures"] for line in reversed(lines) if line["kind"] == "evaluation" and line["step"] == number)
        return {"step": number} | next(own, {"simulated": score, "compiled": None})

    def export(self, trained: Trained, answers: Mapping[str, int]) -> Report:
        """Export the best checkpoint to the folder that the recipe names, and return the report."""
        plan, best = self.plan, self.found(read_state(trained.best).step, trained.score)
        student = self.source.checkpoint(plan, self.begun).student(plan.depth, self.model)
        load_student(student, trained.best)
        report = Report(
            recipe=str(self.source.recipe),
            kind=plan.kind,
            output=str(plan.output),
            steps=trained.steps,
            seconds=round(trained.elapsed, 1),
            begun=None if plan.begin is None else _short(self.found(0)),
            best=_short(best),
            curves=str(plan.work / CURVES),
            data=about(self.corpus.texts.folder) | {"learnt_from": len(self.corpus), "held_out": len(self.held_out)},
            answers=answers,
        )
        said = report.to_json() | {"target": plan.target.reference, "loss": asdict(plan.loss)}
        for name in ("recipe", "output", "curves"):  # paths of this machine
            del said[name]
        schedule = asdict(plan.schedule) | {"precision": trained.precision}
        export_drafter(plan, student, said | {"schedule": schedule, "evaluation": best})
        return report


def _short(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("step", "simulated", "compiled")}
