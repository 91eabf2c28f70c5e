"""Teacher: the frozen target, run on a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from speccompile.compiler.step.taps import Taps
from speccompile.drafters.trainable import TeacherBatch


class Teacher:
    """Frozen causal language model of transformers, with taps at the hidden states that a drafter reads."""

    def __init__(self, model: nn.Module, taps: Sequence[str]) -> None:
        """Raise UnsupportedModelError for taps that the model does not have."""
        self.model, self.taps = model.eval().requires_grad_(False), Taps(model, taps)

    @torch.no_grad()
    def forward(self, tokens: Tensor, real: Tensor, learnt: Tensor) -> TeacherBatch:
        """Run the target. tokens int64 [B, T]; real, learnt bool [B, T]: attention and loss mask of `TeacherBatch`."""
        with self.taps.open():
            logits = self.model(tokens, attention_mask=real.long(), use_cache=False).logits
        features = self.taps.features() if self.taps.names else logits.new_zeros((*tokens.shape, 0))
        return TeacherBatch(tokens, real, learnt, features.float(), logits.float())
