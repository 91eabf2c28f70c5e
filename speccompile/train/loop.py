"""Training loop until the budget is used: sum the loss of a batch in parts, divide once, check, update the weights.

A step does not depend on its split. Parts, in one or several processes, give sums and weights; the gradient of all sums
is divided once by the total weight. Random numbers are functions of seed, step and part.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from speccompile.compiler.step.attention import HOOK
from speccompile.errors import UnsupportedModelError, UsageError
from speccompile.plan.training_plan import SchedulePlan
from speccompile.progress import LOGGER, log_step
from speccompile.train.checkpoints import (
    OPTIMIZERS,
    BestStep,
    Checkpoints,
    TrainingState,
    load_student,
    read_state,
    read_tensors,
    trainable_state,
)
from speccompile.train.curves import POINTS, TRAINING, MetricsAccumulator, MetricsLog
from speccompile.train.divergence_guard import DivergenceGuard, Samples
from speccompile.train.objective import WeightedLoss
from speccompile.train.optimizers import Optimizers, state_bytes
from speccompile.train.precision import computing_precision
from speccompile.train.processes import Processes, whole_tensor

_TOO_LONG = (
    "step %d has run for %s, which is all of train.schedule.seconds: the training ends with this step; for shorter "
    "ones lower train.schedule.batch_size, train.data.length or train.loss.anchors"
)

LossFunction = Callable[[int, int, int], WeightedLoss]
"""Function (step, part, parts) -> loss of that part of the step's batch."""


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an evaluation. score: tokens per round; higher is better. figures: further results as JSON values."""

    score: float
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Saving:
    """Checkpointing. folder: folder of the checkpoints. every: seconds between them, the most work that a crash loses.
    keep: number that stay in addition to the best. plan: key of the training as JSON values; only it can resume."""

    folder: Path
    every: float
    keep: int
    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationSchedule:
    """Evaluation during a training. evaluate: evaluates a step in the first process, with the drafter's full weights.
    every: seconds between evaluations. first: whether to evaluate before the first step, too."""

    evaluate: Callable[[int], EvaluationResult]
    every: float
    first: bool = False


@dataclass(frozen=True)
class Trained:
    """Result of a training. steps: number of steps done. elapsed: their seconds. precision: they were computed in it.
    last, best: checkpoints; without an evaluation, best is the last one."""

    steps: int
    elapsed: float
    precision: str
    last: Path
    best: Path
    score: float | None


def train(
    processes: Processes, student: nn.Module, weigh: LossFunction, schedule: SchedulePlan, saving: Saving, *,
    seed: int, evaluation: EvaluationSchedule | None = None, samples: Samples | None = None,
    curves: MetricsLog | None = None,
) -> Trained:  # fmt: skip
    """Train `student`; resume from the last checkpoint, if any. All processes make the same call.

    weigh: called with gradients enabled, in the schedule's precision. samples: names the samples of a part, for
    messages. curves: the first process's log; None in other processes. Afterwards the student holds the last weights on
    its device, sharded with FSDP; `load_student` loads the best ones.

    Raise TrainingError if the loss is not finite or explodes, or the disk is full; RecipeError for checkpoints of
    another training; CheckpointError for unreadable ones; UsageError for a batch with fewer samples than parts.
    """
    loop = _Loop(processes, student, weigh, schedule, saving, seed, evaluation, samples, curves)
    try:
        loop.begin()
        return loop.run()
    finally:
        loop.end()


class _Weighing(nn.Module):
    """Module that DDP or FSDP wraps: its forward is the whole loss of a part. The drafter inside may run any number of
    times per part, and is still wrapped once."""

    def __init__(self, student: nn.Module, weigh: LossFunction, low: torch.device | None) -> None:
        """low: device of bfloat16 autocast; None for float32."""
        super().__init__()
        self.student, self.weigh, self.low = student, weigh, low

    def forward(self, step: int, part: int, parts: int) -> tuple[Tensor, Tensor, dict[str, Any]]:
        with torch.autocast(self.low.type, torch.bfloat16) if self.low else nullcontext():
            weighed = self.weigh(step, part, parts)
        return weighed.total, weighed.weight, dict(weighed.shown)


class _Loop:
    def __init__(
        self, processes: Processes, student: nn.Module, weigh: LossFunction, schedule: SchedulePlan, saving: Saving,
        seed: int,
        evaluation: EvaluationSchedule | None, samples: Samples | None, curves: MetricsLog | None,
    ) -> None:  # fmt: skip
        self.processes, self.student, self.schedule, self.seed = processes, student, schedule, seed
        self.saving, self.evaluation, self.curves = saving, evaluation, curves
        self.precision = computing_precision(schedule.precision, processes)
        low = processes.device if self.precision == "bfloat16" else None
        self.model: nn.Module = _Weighing(student, weigh, low)
        self.parts = parts_of(schedule, processes.count)
        self.watch = DivergenceGuard(samples, f"; checkpoints are in {saving.folder}")
        self.optimizers = Optimizers.of(student, schedule)
        size = sum(value.numel() * value.element_size() for value in trainable_state(student).values())
        self.checkpoints = Checkpoints(saving.folder, saving.keep, saving.plan, size + state_bytes(student, schedule))
        self.state, self.saved, self.interval, self.rate = TrainingState(), -1, MetricsAccumulator(), 0.0

    def begin(self) -> None:
        """Lock the checkpoint folder and load the last checkpoint, if any."""
        found: Path | None = self.processes.run_on_main(self.checkpoints.open)
        if found is not None:
            self.state = read_state(found)
            self.watch.load(self.state.watch)
            load_student(self.student, found)
        if self.schedule.checkpointing:
            checkpoint_activations(self.student)
        self.model = self.processes.prepare(self.model, self.optimizers.all)
        if found is not None:
            self.optimizers.load(read_tensors(found / OPTIMIZERS))
            self.saved = self.state.step
        if self.curves is not None:
            self.curves.go_on(self.state.step, self.used)
        self.student.train()
        self.last_saved = self.last_evaluated = time.perf_counter()

    def run(self) -> Trained:
        """Take steps until the budget is used. Then evaluate and save the last step unless that is done."""
        if self.evaluation is not None and self.evaluation.first and self.state.step == 0:
            self._evaluate()
            self._save()
        with log_step(TRAINING) if self.curves is not None else nullcontext():
            self._take_steps()
        if self.saved != self.state.step or (self.evaluation is not None and self.state.score is None):
            self._draw()
            self._evaluate()
            self._save()
        if self.curves is not None:
            self.curves.write_page()
        state, last = self.state, self.checkpoints.path(self.state.step)
        best = last if state.best is None else self.checkpoints.path(state.best.step)
        score = None if state.best is None else state.best.score
        return Trained(state.step, state.elapsed, self.precision, last, best, score)

    def _take_steps(self) -> None:
        while self.used < 1:
            point = math.floor(POINTS * self.used)
            with self._told_when_too_long():
                self._step()
            must_evaluate, must_save = self._due()
            if must_evaluate or must_save or math.floor(POINTS * self.used) > point:
                self._draw()
            if must_evaluate:
                self._evaluate()
            if must_evaluate or must_save:
                self._save()

    def end(self) -> None:
        self.checkpoints.close()
        if self.curves is not None:
            self.curves.close()

    @property
    def used(self) -> float:
        """Return the used share of the budget."""
        if self.schedule.steps is not None:
            return self.state.step / self.schedule.steps
        assert self.schedule.seconds is not None, "the plan has one of both"
        return self.state.elapsed / self.schedule.seconds

    @contextmanager
    def _told_when_too_long(self) -> Iterator[None]:
        """Log a line if a step still runs when the whole budget of seconds is used: only whole steps can end."""
        if self.schedule.seconds is None or not self.processes.is_first:
            yield
            return
        telling = threading.Timer(
            self.schedule.seconds, LOGGER.warning, [_TOO_LONG, self.state.step + 1, self._budget()]
        )
        telling.daemon = True
        telling.start()
        try:
            yield
        finally:
            telling.cancel()

    def _step(self) -> None:
        start, step = time.perf_counter(), self.state.step
        self.rate = self.optimizers.set_rates(step, self.used)
        sums = self._weigh(step)
        totals, weights = sums.tolist()
        loss = self.watch.see_loss(step, totals, weights)
        trained = [each for each in self.student.parameters() if each.grad is not None]
        # DDP and FSDP2 return the mean of the processes' gradients, hence the factor `count`.
        torch._foreach_mul_([each.grad for each in trained], self.processes.count / sum(weights))
        norm = self.processes.clip(trained, self.schedule.clip)
        self.watch.see_gradient(step, norm, self.parts)
        self.optimizers.step()
        self.interval.add(sum(totals), sum(weights), norm)
        (elapsed,) = self.processes.broadcast(self.state.elapsed + time.perf_counter() - start)
        self.state = TrainingState(step + 1, elapsed, best=self.state.best, plan=self.saving.plan)
        if self.curves is not None:
            self.curves.log_line(self.state.step, self.used, self._budget(), loss)

    def _weigh(self, step: int) -> Tensor:
        """Return totals and weights of all parts, float64 [2, parts], and leave the gradients in the parameters."""
        sums = torch.zeros(2, self.parts, dtype=torch.float64, device=self.processes.device)
        mine = range(self.processes.rank, self.parts, self.processes.count)
        for part in mine:
            seed_part(self.seed, step, part)
            with nullcontext() if part == mine[-1] else self.processes.no_sync(self.model):
                total, weight, shown = self.model(step, part, self.parts)
                total.backward()
            sums[0, part], sums[1, part] = total.detach(), weight.detach()
            self.interval.show(shown)
        return self.processes.all_reduce_sum(sums)

    def _due(self) -> tuple[bool, bool]:
        """Return whether to evaluate and whether to save now, by the first process's clock. Never while the loss is too
        high: either it falls again, or the guard ends the training."""
        now = time.perf_counter()
        evaluate = self.evaluation is not None and now - self.last_evaluated >= self.evaluation.every
        save = now - self.last_saved >= self.saving.every
        evaluate, save = (bool(each) for each in self.processes.broadcast(evaluate, save))
        return evaluate and self.watch.is_stable, save and self.watch.is_stable

    def _draw(self) -> None:
        """Write a metrics line of the steps since the last one."""
        if not self.interval.steps:
            return
        counts = self.processes.all_gather(self.interval.counts())
        if self.curves is not None:
            highest = max(rate for _, rate in self.optimizers.by_name.values())
            self.curves.steps(
                self.interval, counts, step=self.state.step, elapsed=self.state.elapsed, rate=self.rate * highest
            )
        self.interval = MetricsAccumulator()

    def _evaluate(self) -> None:
        if self.evaluation is None:
            return
        evaluate, step, best = self.evaluation.evaluate, self.state.step, self.state.best
        with self.processes.full_parameters(self.model):
            self.student.eval()
            result: EvaluationResult = self.processes.run_on_main(lambda: evaluate(step))
            self.student.train()
        is_best = best is None or result.score > best.score
        best = BestStep(step, result.score) if is_best else best
        self.state = TrainingState(step, self.state.elapsed, best=best, score=result.score, plan=self.saving.plan)
        if self.curves is not None:
            self.curves.evaluation(result.score, result.figures, step=step, elapsed=self.state.elapsed, is_best=is_best)
        self.last_evaluated = time.perf_counter()

    def _save(self) -> None:
        """Save a checkpoint: all processes gather it, the first one writes it."""
        own = {name: whole_tensor(value.detach()).cpu() for name, value in trainable_state(self.student).items()}
        kept = {name: value.cpu() for name, value in self.optimizers.state().items()}
        state = TrainingState(**(vars(self.state) | {"watch": self.watch.state()}))
        self.processes.run_on_main(lambda: self.checkpoints.save(state, own, kept))
        self.saved, self.last_saved = state.step, time.perf_counter()

    def _budget(self) -> str:
        return f"{self.schedule.seconds:g} s" if self.schedule.steps is None else f"{self.schedule.steps} steps"


def parts_of(schedule: SchedulePlan, processes: int) -> int:
    """Return the number of parts of a step's batch: `accumulate`, rounded up to a multiple of `processes`.
    Raise UsageError if the batch has fewer samples."""
    parts = math.ceil(schedule.accumulate / processes) * processes
    if parts > schedule.batch_size:
        raise UsageError(
            f"train.schedule.batch_size: received {schedule.batch_size}, expected at least {parts}: a step has so many "
            f"parts, by accumulate {schedule.accumulate} and {processes} processes",
            hint="raise batch_size, or lower accumulate or the number of processes",
        )
    return parts


def seed_part(seed: int, step: int, part: int) -> None:
    """Seed Python, numpy and torch for a part."""
    from accelerate.utils import set_seed

    set_seed(int(np.random.SeedSequence((seed, step, part)).generate_state(1)[0]))


def checkpoint_activations(student: nn.Module) -> None:
    """Enable gradient checkpointing: per layer in transformers' models, else of the drafter's whole forward pass.

    Models with our attention hook belong to the second case: the hook must write its cache once, and transformers'
    checkpointing disables the cache. Raise UnsupportedModelError for a model of transformers without checkpointing.
    """
    found = [
        module
        for module in student.modules()
        if hasattr(module, "gradient_checkpointing_enable") and module.config._attn_implementation != HOOK
    ]
    for module in found:
        try:
            module.gradient_checkpointing_enable({"use_reentrant": False})
        except ValueError as error:
            raise UnsupportedModelError(
                f"train.schedule.checkpointing: received true, expected false for {type(module).__name__}: {error}",
                hint="set it to false, and lower batch_size or raise accumulate",
            ) from error
    if not found:
        setattr(student, "forward", partial(checkpoint, student.forward, use_reentrant=False))  # noqa: B010 (mypy)
