"""Teacher: the frozen target, run on a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from speccompile.compiler.models.sourced import SourcedModel, answers_over
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.trainable import SourcedBatch, TeacherBatch
from speccompile.plan.plan import ModelPlan
from speccompile.plan.sources import SourcePlan
from speccompile.runtime.sources import start_tokens
from speccompile.train.data.sounds import NUMBERS, Sounds
from speccompile.train.sources import Sources, Texts, split_sources


def answer_start(target: ModelPlan) -> tuple[int, ...]:
    """Return the start tokens of the target's answers, () for a language model."""
    source = target.facts.source
    return () if source is None else tuple(start_tokens(SourcePlan(1, source).to_json()))


class Teacher:
    """Frozen model of transformers, with taps at the hidden states that a drafter reads.

    Samples of a target with an encoder are a source and its answer; the outputs are those of the answer alone.
    """

    def __init__(
        self, model: nn.Module, taps: Sequence[str], start: Sequence[int] = (), sounds: Sounds | None = None
    ) -> None:
        """start: see `answer_start`. sounds: audio files of the samples, for speech recognition. Raise
        UnsupportedModelError for taps that the model does not have."""
        self.sounds = sounds
        self.model, self.taps, self.start = model.eval().requires_grad_(False), Taps(model, taps), tuple(start)

    @torch.no_grad()
    def forward(self, tokens: Tensor, real: Tensor, learnt: Tensor) -> TeacherBatch:
        """Run the target. tokens int64 [B, T]; real, learnt bool [B, T]: attention and loss mask of `TeacherBatch`."""
        if isinstance(self.model, SourcedModel):
            sources, (tokens, real, learnt) = self._split(tokens, real, learnt)
            with self.taps.open():
                logits = answers_over(self.model.whole, *sources, tokens).logits
            return SourcedBatch(tokens, real, learnt, self._features(logits), logits.float(), *sources)
        with self.taps.open():
            logits = self.model(tokens, attention_mask=real.long(), use_cache=False).logits
        return TeacherBatch(tokens, real, learnt, self._features(logits), logits.float())

    def _split(self, tokens: Tensor, real: Tensor, learnt: Tensor) -> tuple[Sources, Texts]:
        """Return the sources of samples, features float32 [B, M, F] for speech recognition, and their answers."""
        if self.sounds is None:
            return split_sources(tokens, real, learnt, self.start)
        numbers = tokens[:, :NUMBERS].tolist()
        (_, is_source), texts = split_sources(tokens, real, learnt, list(map(self.sounds.start, numbers)))
        return (self.sounds.hear(numbers).to(tokens.device), is_source), texts

    def _features(self, logits: Tensor) -> Tensor:
        return self.taps.features() if self.taps.names else logits.new_zeros((*logits.shape[:2], 0)).float()

    def prompt_length(self, prompt: Sequence[int]) -> int:
        """Return the number of rows of the outputs before the first new token."""
        return len(self.start) if self.start else len(prompt)
