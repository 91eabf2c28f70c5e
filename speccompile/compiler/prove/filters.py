"""The target's distribution under sampling settings: the reference, and its filters in numpy, in transformers'
order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.sampling import GREEDY, SAMPLING_OPTIONS, SamplingParams

Floats = NDArray[np.float64]
Logits = NDArray[np.float32]
Text = Sequence[int]

EDGE = 1e-3
"""Tolerance at a filter's cut: in top-p's mass, and relative to a probability."""


def options(sampling: SamplingParams) -> dict[str, Any]:
    """Return the settings as options of `Bundle.generate`, without the seed."""
    numbers = {name: getattr(sampling, name) for name, option in SAMPLING_OPTIONS.items() if option.kind != "seed"}
    return numbers | {"logit_bias": dict(sampling.logit_bias)}


def described(sampling: SamplingParams) -> dict[str, Any]:
    """Return the settings that differ from the defaults, by which proofs name them."""
    return {name: value for name, value in options(sampling).items() if value != options(GREEDY)[name]}


def unfiltered(logits: Logits, tokens: Text, sampling: SamplingParams) -> Floats:
    """Return float64 [V]: probabilities after repetition penalty and temperature, of logits [V] that follow
    `tokens`."""
    scores = logits.astype(np.float64)
    seen = np.unique(tokens)
    factor = sampling.repetition_penalty
    scores[seen] = np.where(scores[seen] < 0, scores[seen] * factor, scores[seen] / factor)
    weights: Floats = np.exp((scores - scores.max()) / sampling.temperature)
    return weights / weights.sum()


def filtered(probabilities: Floats, sampling: SamplingParams) -> Floats:
    """Return float64 [V]: unfiltered probabilities [V] after top-k, top-p and min-p, summing to one."""
    left = np.where(probabilities >= _cut(probabilities, sampling), probabilities, 0.0)
    return left / left.sum()


def possible(probabilities: Floats, sampling: SamplingParams) -> NDArray[np.bool_]:
    """Return bool [V]: tokens that rounding may let through the filters. No other token may ever be drawn."""
    wider = replace(sampling, top_p=min(1.0, sampling.top_p + EDGE))
    return probabilities >= (1 - EDGE) * _cut(probabilities, wider)


def _cut(probabilities: Floats, sampling: SamplingParams) -> float:
    """Return the smallest probability that passes; equal ones pass too."""
    ordered = np.sort(probabilities)[::-1]
    left = ordered[ordered >= ordered[min(sampling.top_k, len(ordered)) - 1]] if sampling.top_k else ordered
    above = np.cumsum(left) - left
    kept = left[(above < sampling.top_p * left.sum()) | (above == 0)]
    return max(float(kept[-1]), sampling.min_p * float(ordered[0]))


def shaped(logits: Logits, tokens: Text, sampling: SamplingParams) -> Floats:
    """Return float64 [V]: the distribution after `tokens`, of their logits [V]."""
    return filtered(unfiltered(logits, tokens, sampling), sampling)


class Expected(NamedTuple):
    """Expected next token. probabilities float64 [V], after all filters; possible bool [V]."""

    probabilities: Floats
    possible: NDArray[np.bool_]


@dataclass(frozen=True)
class Reference:
    """The target. name: in the proof. logits: after each of some texts, float32 [V]. shaped: (logits, text, settings)
    -> the distribution of the next token, float64 [V]."""

    name: str
    logits: Callable[[Sequence[Text]], Sequence[Logits]]
    shaped: Callable[[Logits, Text, SamplingParams], Floats] = shaped

    def expected(self, texts: Sequence[Text], sampling: SamplingParams) -> list[Expected]:
        """Return the expected next token of each text."""
        return [
            Expected(self.shaped(logits, text, sampling), possible(unfiltered(logits, text, sampling), sampling))
            for logits, text in zip(self.logits(texts), texts, strict=True)
        ]


def adjusted(reference: Reference, sampling: SamplingParams, prompt: int) -> Reference:
    """Return a reference with the biases and penalties of these settings added to its logits, where the new text begins
    behind `prompt` tokens. Without a repetition penalty, which comes between them."""

    def add(text: Text, logits: Logits) -> Logits:
        counts = np.bincount(text[prompt:], minlength=len(logits))
        scores = logits - counts * sampling.frequency_penalty - (counts > 0) * sampling.presence_penalty
        for token, bias in sampling.logit_bias:
            scores[token] += bias
        return scores.astype(np.float32)

    def after(texts: Sequence[Text]) -> list[Logits]:
        return [add(text, logits) for text, logits in zip(texts, reference.logits(texts), strict=True)]

    return replace(reference, logits=after) if sampling.adjusts_logits else reference
