"""A token's distribution under sampling settings, by transformers' own logits processors."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

import numpy as np
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

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.models.eager import attend_eagerly
from speccompile.compiler.prove.filters import Floats, Logits, Reference, Text

_AT_ONCE = 32  # texts


def processors(sampling: SamplingParams) -> LogitsProcessorList:
    """Return the processors that `generate` would run for these settings, in its order."""
    found = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty))])
    found.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        found.append(MinPLogitsWarper(sampling.min_p))
    return found


def probabilities(logits: Logits, tokens: Text, sampling: SamplingParams) -> Floats:
    """Return float64 [V], of logits [V] that follow `tokens`."""
    scores: Tensor = processors(sampling)(torch.tensor([list(tokens)]), torch.from_numpy(logits)[None].double())
    found: Floats = scores[0].softmax(-1).numpy()
    return found


def eager_reference(model: nn.Module) -> Reference:
    """Return a reference: a model of transformers, in eager attention, and transformers' filters."""
    known: dict[tuple[int, ...], Logits] = {}

    def after(texts: Sequence[Text]) -> list[Logits]:
        asked = list(map(tuple, texts))
        for group in _groups(text for text in dict.fromkeys(asked) if text not in known):
            known.update(zip(group, last_logits(model, group), strict=True))
        return [known[text] for text in asked]

    return Reference("transformers", after, probabilities)


def _groups(texts: Iterable[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Yield texts of equal length, a few at a time."""
    for _, equal in groupby(sorted(texts, key=len), len):
        while group := list(islice(equal, _AT_ONCE)):
            yield group


@torch.no_grad()
def last_logits(model: nn.Module, texts: Sequence[Text]) -> Logits:
    """Return float32 [n, V]: the logits after each of n texts of one length, in one eager forward without a cache."""
    attend_eagerly(model)
    logits = model(input_ids=torch.tensor(texts), use_cache=False).logits
    return np.asarray(logits[:, -1].float().numpy())
