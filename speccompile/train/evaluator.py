"""Evaluator of a training: it evaluates every checkpoint, as it would be exported, on the same held-out samples."""

from dataclasses import dataclass

from torch import nn

from speccompile.plan.training_plan import TrainingPlan
from speccompile.train.data.corpus import Dataset
from speccompile.train.data.sounds import Sounds
from speccompile.train.evaluate import Answer, Checkpoint, Run, answer, batches, depths, evaluate, prompts_of
from speccompile.train.evaluate.held_out_loss import HeldOutLoss
from speccompile.train.loop import EvaluationResult
from speccompile.train.objective import Objective
from speccompile.train.teacher import Teacher, answer_start

_TOGETHER = 8
"""Number of held-out samples per batch."""


@dataclass
class Evaluator:
    """Evaluator of checkpoints. model: the target. sounds: of a target that hears. answers: its responses to held-out
    prompts, None until first use."""

    plan: TrainingPlan
    model: nn.Module
    held_out: Dataset
    sounds: Sounds | None = None
    answers: list[Answer] | None = None

    def evaluate(self, checkpoint: Checkpoint, step: int, seconds: float) -> EvaluationResult:
        """Evaluate a checkpoint. Its temporary bundle lies in the checkpoint's parent folder. Raise build errors."""
        evaluation = self.plan.evaluate
        student = checkpoint.student(evaluation.depth, self.model)
        student = student.to(next(self.model.parameters()).device)
        teacher = Teacher(self.model, student.taps, answer_start(self.plan.target), self.sounds)
        texts = batches(self.held_out, evaluation.texts, _TOGETHER)
        loss = HeldOutLoss(Objective(self.plan.loss, min(self.plan.depth, evaluation.depth)), student, self.plan.seed)
        counts = depths(student, teacher, texts, evaluation.depth, loss.add)
        run = Run(checkpoint, evaluation.max_new_tokens, checkpoint.folder.parent, own=True)
        found = evaluate(
            student, teacher, counts, self._answers(checkpoint), evaluation.depth, step=step, seconds=seconds,
            loss=loss.value, run=run if evaluation.compiled else None,
        )  # fmt: skip
        return EvaluationResult(found.simulated.mean_accepted or 1.0, found.to_json())

    def _answers(self, checkpoint: Checkpoint) -> list[Answer]:
        if self.answers is None:
            evaluation, compiled = self.plan.evaluate, checkpoint.plan(self.plan.evaluate.depth)
            longest_prompt = compiled.max_length - evaluation.max_new_tokens
            longest = longest_prompt if compiled.source is None else compiled.source.max_length
            prompts = prompts_of(self.held_out, evaluation.prompts, max(1, min(longest, self.plan.data.length)))
            ends = self.plan.target.facts.eos_token_ids
            start = answer_start(self.plan.target)
            most = evaluation.max_new_tokens, ends, compiled.max_length
            self.answers = answer(self.model, prompts, *most, start, self.sounds)
        return self.answers
