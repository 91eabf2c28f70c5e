"""The judge of a training: the same held-out texts and prompts for every checkpoint, as it would be left."""

from dataclasses import dataclass

from torch import nn

from speccompile.plan.training_plan import TrainingPlan
from speccompile.train.data.corpus import Dataset
from speccompile.train.evaluate import Answer, Checkpoint, Run, answer, batches, depths, evaluate, prompts_of
from speccompile.train.loop import EvaluationResult
from speccompile.train.teacher import Teacher

_TOGETHER = 8
"""Held-out texts that are read side by side."""


@dataclass
class Evaluator:
    """model: the target. answers: its own to prompts of the held-out part, once they are made."""

    plan: TrainingPlan
    model: nn.Module
    held_out: Dataset
    answers: list[Answer] | None = None

    def judge(self, checkpoint: Checkpoint, step: int, seconds: float) -> EvaluationResult:
        """What is built of it lies beside it for so long. Raises what a build raises."""
        evaluation = self.plan.evaluate
        learner = checkpoint.learner(evaluation.depth, self.model)
        learner = learner.to(next(self.model.parameters()).device)
        teacher = Teacher(self.model, learner.taps)
        texts = batches(self.held_out, evaluation.texts, _TOGETHER)
        counts = depths(learner, teacher, texts, evaluation.depth)
        run = Run(checkpoint, evaluation.max_new_tokens, checkpoint.folder.parent, own=True)
        found = evaluate(
            learner, teacher, counts, self._answers(checkpoint), evaluation.depth, step=step, seconds=seconds,
            run=run if evaluation.compiled else None,
        )  # fmt: skip
        return EvaluationResult(found.simulated.mean_accepted or 1.0, found.to_json())

    def _answers(self, checkpoint: Checkpoint) -> list[Answer]:
        if self.answers is None:
            evaluation, capacity = self.plan.evaluate, checkpoint.plan(self.plan.evaluate.depth).max_length
            longest = max(1, min(capacity - evaluation.max_new_tokens, self.plan.data.length))
            prompts = prompts_of(self.held_out, evaluation.prompts, longest)
            ends = self.plan.target.facts.eos_token_ids
            self.answers = answer(self.model, prompts, evaluation.max_new_tokens, ends, capacity)
        return self.answers
