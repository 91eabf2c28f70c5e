"""A training from its plan to the folder that it leaves: answers, data, what it begins with, steps, the best one."""

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
from speccompile.train.answers import Prompt, make_answers
from speccompile.train.answers.store import account
from speccompile.train.checkpoints import check_same, load_learner, read_state
from speccompile.train.col_bt import unsolved_texts
from speccompile.train.curves import CURVES, MetricsLog, read_curves
from speccompile.train.data.corpus import Batch, Dataset
from speccompile.train.data.data_cache import about
from speccompile.train.data.features import CachedFeatureTeacher, write_features
from speccompile.train.data.prepare import check_sides, prepare, prepare_prompts
from speccompile.train.data.print_sample import print_sample
from speccompile.train.evaluate.checkpoint import Checkpoint
from speccompile.train.evaluator import Evaluator
from speccompile.train.export import export_drafter
from speccompile.train.initial_drafter import initial_drafter_folder
from speccompile.train.loop import EvaluationResult, EvaluationSchedule, Saving, Trained, train
from speccompile.train.objective import Objective, WeightedLoss
from speccompile.train.on_policy import is_on_policy_step, sample_on_policy
from speccompile.train.processes import Processes
from speccompile.train.teacher import Teacher
from speccompile.train.work import ANSWERS, CHECKPOINTS, DATA, JUDGED, disk_errors, open_work, run_key


@dataclass(frozen=True)
class Source:
    """recipe, overrides: as of `load_recipe`; alone: overrides that make one language model of several."""

    recipe: Path
    overrides: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, overrides: tuple[str, ...], plan: TrainingPlan) -> "Source":
        several = recipe.drafter is not None and recipe.drafter.models is not None
        drafter = json.dumps({"kind": plan.kind, "tokens": plan.evaluate.depth})
        return cls(recipe.origin.path, overrides, (f"drafter={drafter}",) if several else ())

    def checkpoint(self, plan: TrainingPlan, folder: Path) -> Checkpoint:
        """A folder in the place of the recipe's drafter."""
        return Checkpoint(self.recipe, (*self.overrides, *self.alone), plan.kind, folder)


@dataclass(frozen=True)
class Report:
    """What was done. begun, best: what was gone on from, None for a new drafter, and the step whose weights were left,
    with their tokens a round, simulated and compiled."""

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
    """Train what `plan` says, from where the work folder stands, and leave it in `plan.output`.

    All processes of a launch call this alike; the first writes, and has the report. Raises what the rooms of `train`
    raise.
    """
    quiet_transformers()
    processes = Processes()
    if not processes.is_first:
        LOGGER.setLevel(logging.WARNING)  # the first speaks
    if not restart:
        processes.run_on_main(lambda: _check_same(plan))
    processes.run_on_main(lambda: open_work(plan, restart=restart))
    tokenizer = _tokenizer(plan)
    learnt, held_out, answers = _data(plan, tokenizer, processes)
    if processes.is_first:
        LOGGER.info("%s", print_sample(learnt, tokenizer))
    model = processes.put_target(load_model(plan.target.folder, plan.max_length))
    if plan.loss.drop is not None:
        first = source.checkpoint(plan, Path(plan.loss.drop)).learner(1, model)
        learnt = unsolved_texts(learnt, first.to(processes.device), plan.loss.drop)
    begun = processes.run_on_main(lambda: initial_drafter_folder(plan, model, learnt))
    run = _TrainingRun(plan, source, processes, model, learnt, held_out, begun)
    trained = run.train(tensorboard=tensorboard)
    found: list[Report] = []
    processes.run_on_main(lambda: found.append(run.leave(trained, answers)))
    return found[0] if found else None


def _check_same(plan: TrainingPlan) -> None:
    """Raises RecipeError where another training is under way, before its data and its beginning are taken for this
    one's. Whether the data are the same is known when they are read."""
    for last in sorted((plan.work / CHECKPOINTS).glob("step-*"))[-1:]:
        found = read_state(last).plan
        check_same(found, run_key(plan, found["data"]), last)


def _tokenizer(plan: TrainingPlan) -> Any:
    """The target's, with the chat template of the recipe; None where there is none."""
    if not plan.target.facts.tokenizer:
        return None
    tokenizer = AutoTokenizer.from_pretrained(plan.target.folder, local_files_only=True)
    if plan.data.template is not None:
        tokenizer.chat_template = plan.data.template.read_text(encoding="utf-8")
    return tokenizer


def _data(plan: TrainingPlan, tokenizer: Any, processes: Processes) -> tuple[Dataset, Dataset, dict[str, int]]:
    """What is learnt from, what is held out, and the account of the answers. The first process makes them."""
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
    return make_answers(plan, asked, plan.work / ANSWERS)


class _TrainingRun:
    """One training: what learns, what it learns from, and who judges it."""

    def __init__(
        self, plan: TrainingPlan, source: Source, processes: Processes, model: nn.Module, learnt: Dataset,
        held_out: Dataset, begun: Path,
    ) -> None:  # fmt: skip
        self.plan, self.source, self.processes, self.model = plan, source, processes, model
        self.corpus, self.held_out, self.begun = learnt, held_out, begun
        self.learner = self._learner()
        self.teacher = Teacher(model, self.learner.taps)
        self.kept = self._kept(learnt)
        self.objective = Objective(plan.loss, self.learner.depth)
        self.judging, self.began = Evaluator(plan, model, held_out), time.perf_counter()

    def _learner(self) -> TrainableDrafter:
        """With the weights that it begins with, where this process computes."""
        found = self.source.checkpoint(self.plan, self.begun).learner(self.plan.depth, self.model)
        return found.to(self.processes.device)

    def _kept(self, corpus: Dataset) -> CachedFeatureTeacher | None:
        """What was written of the target's features, where the recipe wants them on the disk."""
        if self.plan.data.features != "disk":
            return None
        folder = self.plan.work / DATA
        rank, count = self.processes.rank, self.processes.count
        with self.processes.whole_target():
            written = write_features(self.plan, self.model, corpus, folder, "features", rank, count)
            self.processes.all_gather(None)  # all have written theirs
        return CachedFeatureTeacher(self.plan, self.model, corpus, written)

    def train(self, *, tensorboard: bool) -> Trained:
        plan = self.plan
        saving = Saving(plan.work / CHECKPOINTS, plan.save_every, plan.keep, run_key(plan, self.corpus.key))
        curves = None
        if self.processes.is_first:
            curves = MetricsLog(plan.work, f"{plan.name}: {plan.kind}", tensorboard=tensorboard)
        return train(
            self.processes, self.learner, self.weigh, plan.schedule, saving,
            seed=plan.seed, judging=EvaluationSchedule(self.judge, plan.evaluate.every, first=plan.begin is not None),
            samples=self.samples, curves=curves,
        )  # fmt: skip

    def samples(self, step: int, part: int, parts: int) -> tuple[int, ...]:
        """Numbers of the texts of a part."""
        return self._batch(step, part, parts).samples

    def _batch(self, step: int, part: int, parts: int) -> Batch:
        return self.corpus.batch(self.plan.seed, step, self.plan.schedule.batch_size, part, parts)

    def weigh(self, step: int, part: int, parts: int) -> WeightedLoss:
        """What a part of a step's batch adds to the loss."""
        return self.objective(self.learner, self._seen(self._batch(step, part, parts), step), self.plan.seed, step)

    def _seen(self, batch: Batch, step: int) -> TeacherBatch:
        """What the target makes of texts: the data's, or the drafter's own behind their prompts."""
        device = self.processes.device
        batch = Batch(
            batch.tokens.to(device), batch.attention_mask.to(device), batch.loss_mask.to(device), batch.samples
        )
        texts = batch.tokens, batch.attention_mask, batch.loss_mask
        if is_on_policy_step(self.plan.loss, self.plan.seed, step):
            ends = self.plan.target.facts.eos_token_ids
            return self.teacher.forward(*sample_on_policy(self.learner, *texts, ends, self.plan.seed, step))
        return self.teacher.forward(*texts) if self.kept is None else self.kept.read(batch)

    def judge(self, number: int) -> EvaluationResult:
        """What the learner, as it would be left after so many steps, accepts."""
        folder = self.plan.work / JUDGED / f"step-{number}"
        shutil.rmtree(folder.parent, ignore_errors=True)
        try:
            with disk_errors(folder.parent):
                self.learner.save(folder, getattr(torch, self.plan.dtype))
            with log_step(f"judging step {number}"), quiet():  # a build has much to say
                seconds = time.perf_counter() - self.began
                return self.judging.judge(self.source.checkpoint(self.plan, folder), number, seconds)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)

    def found(self, number: int, score: float | None = None) -> dict[str, Any]:
        """What was found of the drafter after so many steps; its score alone where somebody took the curves away."""
        lines = read_curves(self.plan.work / CURVES)
        own = (line["figures"] for line in reversed(lines) if line["kind"] == "evaluation" and line["step"] == number)
        return {"step": number} | next(own, {"simulated": score, "compiled": None})

    def leave(self, trained: Trained, answers: Mapping[str, int]) -> Report:
        """Put the best checkpoint where the recipe names its drafter."""
        plan, best = self.plan, self.found(read_state(trained.best).step, trained.score)
        learner = self.source.checkpoint(plan, self.begun).learner(plan.depth, self.model)
        load_learner(learner, trained.best)
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
        for name in ("recipe", "output", "curves"):  # of this machine
            del said[name]
        export_drafter(plan, learner, said | {"schedule": asdict(plan.schedule), "evaluation": best})
        return report


def _short(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("step", "simulated", "compiled")}
