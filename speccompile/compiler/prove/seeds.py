"""The token level at temperature > 0 with deterministic drafts: equal seeds give the tokens of autoregressive sampling.

There verification draws the target's token with a number that belongs to its position in the text, and accepts an equal
draft. So the check is exact but for rounding: a number may lie so close to the border between two tokens that either is
correct.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove import tokens
from speccompile.compiler.prove.filters import described, options, unfiltered
from speccompile.compiler.prove.tokens import Case, Prompt
from speccompile.compiler.prove.tolerance import TOLERANCE, rounding
from speccompile.errors import ProofError
from speccompile.runtime import Bundle, first_difference
from speccompile.runtime.rounds.random import Purpose, Uniforms

SAMPLING = SamplingParams(0.8, seed=1)
"""Settings without filters: rounding can then move only a border between two tokens."""

MOST_TIES = 0.1
"""Maximum share of prompts that may diverge at a near-tie in float32. Measured: none of 20 on the demo."""


def applies(bundle: Bundle) -> bool:
    """Return whether the bundle promises equal tokens."""
    manifest = bundle.manifest
    return manifest.decoding == "sampling" and manifest.exact and not manifest.sample and bundle.speculative


def check(
    bundle: Bundle, prompts: Sequence[Prompt], max_new_tokens: int, sources: tokens.Sources = None
) -> dict[str, Any]:
    """Return the proof's entry on equal seeds. Raise ProofError at a difference that is no near-tie, or at too many."""
    cases = list(tokens.decode_both(bundle, prompts, max_new_tokens, sources, seed=SAMPLING.seed, **options(SAMPLING)))
    ties = [tie for case in cases if (tie := check_equal(bundle, case))]
    if rounding(bundle.entry) == "float32" and len(ties) > max(1, MOST_TIES * len(cases)):
        raise ProofError(
            f"with equal seeds {len(ties)} of {len(cases)} prompts part at near-ties between speculative and "
            f"autoregressive sampling, expected at most {max(1, int(MOST_TIES * len(cases)))} in float32",
            hint="speculation changed what is drawn: please report it with the recipe",
        )
    return {"settings": described(SAMPLING), **tokens.summary(cases, ties)}


def check_equal(bundle: Bundle, case: Case) -> dict[str, Any] | None:
    """Return the near-tie at which the two generations diverge, None if they do not. Raise ProofError for another
    difference."""
    a, b = case.speculative.token_ids, case.autoregressive.token_ids
    index = first_difference(a, b)
    if index is None:
        return None
    if index == min(len(a), len(b)):
        raise ProofError(
            f"{case.where}: with equal seeds speculative sampling gives {len(a)} new tokens, autoregressive {len(b)}"
        )
    logits = tokens.next_logits(bundle, case.prompt_ids + a[:index], case.source)
    ends = unfiltered(logits, case.prompt_ids, SAMPLING).cumsum()
    uniform = float(Uniforms(SAMPLING.seed, 0, Purpose.NEW_TOKEN).draw(index + 1)[index])
    distance = max(_distance(uniform, ends, token) for token in (a[index], b[index]))
    # Logits that change by up to n in either direction change a sum c of probabilities by 2 n c (1 - c), at most n / 2.
    noise = TOLERANCE[rounding(bundle.entry)] * max(float(np.abs(logits).max()), 1.0)
    if distance <= noise / (2 * SAMPLING.temperature):
        return {"prompt": case.number, "index": index, "tokens": [a[index], b[index]], "distance": f"{distance:.0e}"}
    raise ProofError(
        f"{case.where}: with equal seeds, at new token {index} speculative sampling gives {a[index]}, autoregressive "
        f"{b[index]}; the random number {uniform:.6f} is {distance:.3g} away from where both could be drawn",
        hint="speculation changed what is drawn: please report it with the recipe",
    )


def _distance(uniform: float, ends: Any, token: int) -> float:
    """Return the distance of a number in [0, 1) from a token's share of the cumulated probabilities `ends` [V]."""
    start = float(ends[token - 1]) if token else 0.0
    return max(0.0, start - uniform, uniform - float(ends[token]))
