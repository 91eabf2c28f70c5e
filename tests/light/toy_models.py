"""The toy target and the toy drafters: what they say after some tokens, and what sampling makes of it, in numpy."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from speccompile.bundle.sampling import GREEDY, SamplingParams
from speccompile.runtime.devices.engine import Array

VOCABULARY = 258
"""All bytes, then <s> and </s>."""

CANDIDATES = 4
CANDIDATE_PROBS = np.array([0.5, 0.3, 0.15, 0.05], np.float32)
"""Of a drafter that samples, whatever the text."""


def target(tokens: Sequence[int]) -> int:
    """Return the toy target: the token after `tokens`, any byte. All of them matter."""
    return (5 * sum(tokens) + 3 * tokens[-1] + len(tokens)) % 256


def drafts(tokens: Sequence[int], count: int) -> list[int]:
    """Return the toy drafter: often right, sometimes wrong, sometimes with less to say."""
    text = list(tokens)
    while len(text) < len(tokens) + count and text[-1] % 11:
        text.append(target(text) if text[-1] % 4 else target(text) + 1)
    return text[len(tokens) :]


def candidates(tokens: Sequence[int]) -> list[int]:
    """Return the best tokens of a drafter of trees, or of one that samples. The second is sometimes the target's."""
    right = target(tokens)
    order = (0, 1, 7, 9) if tokens[-1] % 4 else (1, 0, 7, 9)
    return [(right + step) % 256 for step in order]


def logits(tokens: Sequence[int]) -> Array:
    """Return float32 [V]: `target` first, the token after it a good second, all others far behind and not alike."""
    right = target(tokens)
    found = np.float32(-6) + (np.arange(VOCABULARY) * 7 + 13 * right) % 29 / np.float32(14)
    found[right], found[(right + 1) % 256] = 4, 3
    return found.astype(np.float32)


Adjustments = Mapping[int, tuple[float, float]]
"""Token -> what is added to its logit before and behind the repetition penalty."""


def adjustments(new: Sequence[int], sampling: SamplingParams) -> Adjustments:
    """Return what OpenAI's formula adds after some new tokens."""
    found = {token: (bias, 0.0) for token, bias in sampling.logit_bias}
    for token, count in Counter(new).items():
        penalty = sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
        found[token] = (found.get(token, (0.0, 0.0))[0], -penalty)
    return found


def distribution(
    tokens: Sequence[int], sampling: SamplingParams, seen: Collection[int], adjusted: Adjustments
) -> Array:
    """Return the distribution float64 [V] to sample from: one-hot at temperature 0. seen: penalized tokens."""
    scores = logits(tokens).astype(np.float64)
    for token, (bias, _) in adjusted.items():
        scores[token] += bias
    penalized = sorted(seen)
    penalty = sampling.repetition_penalty
    scores[penalized] = np.where(scores[penalized] < 0, scores[penalized] * penalty, scores[penalized] / penalty)
    for token, (_, added) in adjusted.items():
        scores[token] += added
    if sampling.temperature == 0:
        return np.eye(VOCABULARY)[scores.argmax()]
    probs = np.exp((scores - scores.max()) / np.float32(sampling.temperature))
    order = np.argsort(-probs, kind="stable")
    if sampling.top_k:
        probs[order[sampling.top_k :]] = 0
    ranked = probs[order] / probs.sum()
    probs[order[ranked.cumsum() - ranked >= np.float32(sampling.top_p)]] = 0
    probs[probs < np.float32(sampling.min_p) * probs.max()] = 0
    return probs / probs.sum()


def draw(probs: Array, uniform: float) -> int:
    """Return the first token up to which the probabilities add up to more than `uniform` of their sum."""
    total = probs.cumsum()
    return int(np.searchsorted(total, uniform * total[-1], side="right"))


def uniforms(seed: int, sequence: int, count: int) -> list[float]:
    """Return those that choose new tokens: numpy's own of the stream's name, cut to 24 bits."""
    numbers = np.random.Generator(np.random.Philox(key=np.array([seed, 3 * sequence], np.uint64))).random(count)
    return (np.floor(numbers * 2**24) / 2**24).tolist()


def autoregressive(prompt: Sequence[int], count: int, sampling: SamplingParams = GREEDY) -> list[int]:
    """Return what the target alone makes of a prompt."""
    text = list(prompt)
    if sampling == GREEDY:
        for _ in range(count):
            text.append(target(text))
    else:
        for uniform in uniforms(sampling.seed, sampling.sequence, count):
            adjusted = adjustments(text[len(prompt) :], sampling)
            text.append(draw(distribution(text, sampling, set(text), adjusted), uniform))
    return text[len(prompt) :]


def path_lengths(prompt: Sequence[int], count: int, tokens: int) -> list[int]:
    """Return tokens verified in each round until there are `count` new ones, the prefill's single one included."""
    text, lengths = [*prompt, target(prompt)], []
    while len(text) < len(prompt) + count:
        guessed, right = drafts(text, tokens), autoregressive(text, tokens + 1)
        accepted = next((n for n, token in enumerate(guessed) if token != right[n]), len(guessed))
        lengths.append(accepted + 1)
        text += right[: accepted + 1]
    return lengths
