"""The target, which stays as it is: what it makes of a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from speccompile.compiler.step.taps import Taps
from speccompile.drafters.trainable import TeacherBatch


class Teacher:
    """A frozen causal language model of transformers, and the places of it that a drafter reads."""

    def __init__(self, model: nn.Module, taps: Sequence[str]) -> None:
        """Raises UnsupportedModelError for taps that have no place in it."""
        self.model, self.taps = model.eval().requires_grad_(False), Taps(model, taps)

    @torch.no_grad()
    def forward(self, tokens: Tensor, real: Tensor, learnt: Tensor) -> TeacherBatch:
        """tokens int64 [B, T]; real, learnt bool [B, T], as in `Seen`."""
        with self.taps.open():
            logits = self.model(tokens, attention_mask=real.long(), use_cache=False).logits
        features = self.taps.features() if self.taps.names else logits.new_zeros((*tokens.shape, 0))
        return TeacherBatch(tokens, real, learnt, features.float(), logits.float())
