"""What the target says under sampling settings: the reference, and its filters in numpy, in transformers' order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.options import GREEDY, SamplingParams
from speccompile.runtime.rounds.sampling_inputs import SETTINGS

Floats = NDArray[np.float64]
Logits = NDArray[np.float32]
Text = Sequence[int]

EDGE = 1e-3
"""How far two right computations may lie apart where a filter cuts: in top-p's mass, and relative to a probability."""


def options(sampling: SamplingParams) -> dict[str, Any]:
    """The settings as options of `Bundle.generate`, without the seed."""
    return {name: getattr(sampling, name) for name in SETTINGS}


def described(sampling: SamplingParams) -> dict[str, Any]:
    """Those that change anything: how proofs name the settings."""
    return {name: value for name, value in options(sampling).items() if value != getattr(GREEDY, name)}


def unfiltered(logits: Logits, tokens: Text, sampling: SamplingParams) -> Floats:
    """float64 [V]: probabilities after repetition penalty and temperature, of logits [V] that follow `tokens`."""
    scores = logits.astype(np.float64)
    seen = np.unique(tokens)
    factor = sampling.repetition_penalty
    scores[seen] = np.where(scores[seen] < 0, scores[seen] * factor, scores[seen] / factor)
    weights: Floats = np.exp((scores - scores.max()) / sampling.temperature)
    return weights / weights.sum()


def filtered(probabilities: Floats, sampling: SamplingParams) -> Floats:
    """float64 [V]: what top-k, top-p and min-p leave of unfiltered probabilities [V], adding up to one."""
    left = np.where(probabilities >= _cut(probabilities, sampling), probabilities, 0.0)
    return left / left.sum()


def possible(probabilities: Floats, sampling: SamplingParams) -> NDArray[np.bool_]:
    """bool [V]: tokens that rounding may let through the filters. Nothing else may ever be drawn."""
    wider = replace(sampling, top_p=min(1.0, sampling.top_p + EDGE))
    return probabilities >= (1 - EDGE) * _cut(probabilities, wider)


def _cut(probabilities: Floats, sampling: SamplingParams) -> float:
    """The smallest probability that passes; those equal to it pass too."""
    ordered = np.sort(probabilities)[::-1]
    left = ordered[ordered >= ordered[min(sampling.top_k, len(ordered)) - 1]] if sampling.top_k else ordered
    above = np.cumsum(left) - left
    kept = left[(above < sampling.top_p * left.sum()) | (above == 0)]
    return max(float(kept[-1]), sampling.min_p * float(ordered[0]))


def shaped(logits: Logits, tokens: Text, sampling: SamplingParams) -> Floats:
    """float64 [V]: the distribution after `tokens`, of their logits [V]."""
    return filtered(unfiltered(logits, tokens, sampling), sampling)


class Expected(NamedTuple):
    """What may come after some tokens. probabilities float64 [V], after all filters; possible bool [V]."""

    probabilities: Floats
    possible: NDArray[np.bool_]


@dataclass(frozen=True)
class Reference:
    """The target. name: how the proof calls it. logits: after each of some texts, float32 [V]. shaped: (logits, text,
    settings) -> the distribution of the token behind, float64 [V]."""

    name: str
    logits: Callable[[Sequence[Text]], Sequence[Logits]]
    shaped: Callable[[Logits, Text, SamplingParams], Floats] = shaped

    def expected(self, texts: Sequence[Text], sampling: SamplingParams) -> list[Expected]:
        """What may come after each of some texts."""
        return [
            Expected(self.shaped(logits, text, sampling), possible(unfiltered(logits, text, sampling), sampling))
            for logits, text in zip(self.logits(texts), texts, strict=True)
        ]
