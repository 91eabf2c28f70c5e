"""The distribution level: samples of a bundle at temperature > 0 against the target's own probabilities. No torch.

The first new token comes from the prefill; the second is the first one that drafts and their acceptance affect. An
exact rule samples the target's distribution for any drafts, so the counts can be tested with chi-square.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove import counts
from speccompile.compiler.prove.chi_square import ChiSquare, chi_square
from speccompile.compiler.prove.counts import Counts, Drawn
from speccompile.compiler.prove.filters import Reference, adjusted, described, options
from speccompile.compiler.prove.source_feeds import source_options
from speccompile.errors import ProofError
from speccompile.runtime import Bundle, Generation

P_VALUE = 1e-6
"""Significance level: smaller p-values count as errors."""

SETTINGS = (SamplingParams(1.0), SamplingParams(0.7, top_k=5), SamplingParams(1.0, top_p=0.8))
"""Settings of every bundle's proof."""

MORE_SETTINGS = (
    *SETTINGS,
    SamplingParams(1.3, top_k=12, top_p=0.9, min_p=0.05, repetition_penalty=1.4),
    SamplingParams(0.9, frequency_penalty=0.9, presence_penalty=0.6, logit_bias=((2, 1.5), (5, -2.0))),
)
"""Settings of a small model's proof, where a sample costs little."""


_HINT = "speculation changed what is drawn: please report it with the recipe"


@dataclass(frozen=True)
class Request:
    """Number of samples: `count` generations of `new_tokens`, for each of some settings."""

    settings: tuple[SamplingParams, ...]
    count: int
    new_tokens: int = 2


def sample_count(weight_bytes: int) -> int:
    """Return the number of generations that prove a target of this size: 1000 up to 16 MB, 100 of 1.6 GB, at least 30.

    A sample costs passes over the weights, and its benefit falls with the root of their number.
    """
    return int(max(30, 1000 * math.sqrt(min(1.0, 16e6 / max(1, weight_bytes)))))


def make_prompt(bundle: Bundle, prompt: Sequence[int], source: list[int] | None = None) -> list[int]:
    """Return the beginning of a prompt and the bundle's greedy continuation, so that lookups find matches; less if the
    buffers hold no more."""
    room = max(1, bundle.manifest.max_length - Request.new_tokens)
    begin = list(prompt[: min(8, room)])
    if len(begin) == room:
        return begin
    return (
        begin
        + bundle.generate(
            begin,
            max_new_tokens=min(16, room - len(begin)),
            **source_options(bundle.manifest, None if source is None else [source]),
        ).token_ids
    )


def draw_all(bundle: Bundle, prompt: list[int], request: Request, source: list[int] | None = None) -> list[Drawn]:
    """Sample the bundle after a prompt, for each of the settings; equal bundles give equal samples."""
    return [
        draw(bundle, prompt, sampling, request, number * 1_000_000, source)
        for number, sampling in enumerate(request.settings)
    ]


def draw(
    bundle: Bundle,
    prompt: list[int],
    sampling: SamplingParams,
    request: Request,
    seed: int,
    source: list[int] | None = None,
) -> Drawn:
    """Generate by the bundle's own loop, in full batches; each generation has its own seed, from `seed` on. With one
    batch slot the prompt is read once, if no recurrent state follows it."""
    found, batch = list[Generation](), bundle.manifest.batch_size
    while len(found) < request.count:
        first = seed + len(found)
        if found and batch == 1:
            bundle.reuse_last()
        found += bundle.generate_batch(
            [prompt] * batch, max_new_tokens=request.new_tokens, seed=range(first, first + batch), adaptive=False,
            **source_options(bundle.manifest, None if source is None else [source]), **options(sampling),
        )  # fmt: skip
    return Drawn(prompt, sampling, found)


def check(manifest: Manifest, all_drawn: Sequence[Drawn], reference: Reference) -> list[dict[str, Any]]:
    """Return the rows of the proof for all samples of a bundle.

    Tests the first new token, the first two together, and, if there are any, the tokens after a whole path of accepted
    drafts. Raise ProofError if a test shows another distribution than the target's, unless the bundle's rule is
    approximate: the row then reports the measurement.
    """
    rows = list[dict[str, Any]]()
    for drawn in all_drawn:
        expected = adjusted(reference, drawn.sampling, len(drawn.prompt))
        found = [counts.first(drawn, expected)]
        if all(len(each.token_ids) > 1 or each.finish_reason == "stop" for each in drawn.generations):
            found.append(counts.first_two(drawn, expected, manifest.eos_token_ids))
        if manifest.depth and (whole := counts.bonus_after_full_acceptance(drawn, expected, manifest.depth)):
            found.append(whole)
        rows += [_row(manifest, drawn, each, reference) for each in found]
    return rows


def _row(manifest: Manifest, drawn: Drawn, found: Counts, reference: Reference) -> dict[str, Any]:
    test = chi_square(found.observed, found.expected)
    if manifest.exact:
        _check(found, test, _who(manifest, drawn.sampling))
    return {
        "drafter": _kind(manifest),
        "tree": manifest.tree,
        "sample": manifest.sample,
        "settings": described(drawn.sampling),
        "token": found.tokens,
        "samples": round(float(found.observed.sum())),
        "statistic": float(f"{test.statistic:.5g}"),
        "degrees": test.degrees,
        "p_value": float(f"{test.p_value:.3g}"),
        "outside": len(found.impossible),
        "accepted": _accepted(drawn),
        "against": reference.name,
        "exact": manifest.exact,
    }


def _check(found: Counts, test: ChiSquare, who: str) -> None:
    samples = round(float(found.observed.sum()))
    if found.impossible:
        raise ProofError(
            f"{who}: {len(found.impossible)} of {samples} samples ({found.tokens}) are tokens that these settings "
            f"exclude, the first is {found.impossible[0]}",
            hint=_HINT,
        )
    if test.p_value < P_VALUE:
        worst = test.worst
        cell = "all rare tokens together" if worst.index is None else found.name(worst.index)
        raise ProofError(
            f"{who}: {samples} samples ({found.tokens}) are not distributed as the target's: p-value "
            f"{test.p_value:.2g}, expected at least {P_VALUE:.0e} (chi-square {test.statistic:.1f}, {test.degrees} "
            f"degrees of freedom); the largest deviation is at {cell}: expected {worst.expected:.1f} times, drawn "
            f"{worst.observed:.0f} times",
            hint=_HINT,
        )


def _who(manifest: Manifest, sampling: SamplingParams) -> str:
    drafts = "drawn" if manifest.sample else "certain"
    settings = ", ".join(
        f"{name} {value}" if isinstance(value, dict) else f"{name} {value:g}"
        for name, value in described(sampling).items()
    )
    return f"drafter {_kind(manifest)} ({manifest.tree}, {drafts} drafts), {settings}"


def _kind(manifest: Manifest) -> str:
    return str(manifest.plan["drafter"]["kind"])


def _accepted(drawn: Drawn) -> float | None:
    """Return the share of first rounds in which a draft was accepted."""
    firsts = [each.path_lengths[0] for each in drawn.generations if each.path_lengths]
    return round(sum(length > 1 for length in firsts) / len(firsts), 3) if firsts else None
