"""What a token's distribution is under sampling settings, by transformers' own logits processors."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from speccompile.prove.filters import Floats, Logits, Reference
from speccompile.prove.reference import sequence_logits
from speccompile.runtime.options import Sampling


def processors(sampling: Sampling) -> LogitsProcessorList:
    """Those that `generate` would run for these settings, in its order."""
    found = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty))])
    found.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        found.append(MinPLogitsWarper(sampling.min_p))
    return found


def probabilities(logits: Logits, tokens: Sequence[int], sampling: Sampling) -> Floats:
    """float64 [V], of logits [V] that follow `tokens`."""
    scores: Tensor = processors(sampling)(torch.tensor([list(tokens)]), torch.from_numpy(logits)[None].double())
    found: Floats = scores[0].softmax(-1).numpy()
    return found


def eager_reference(model: nn.Module) -> Reference:
    """A model of transformers, in eager attention, and transformers' filters."""

    @lru_cache(maxsize=4096)
    def after(tokens: tuple[int, ...]) -> Logits:
        return sequence_logits(model, list(tokens))[-1]

    return Reference("transformers", lambda tokens: after(tuple(tokens)), probabilities)
