"""The distribution level: what a bundle draws at temperature > 0 against the target's own probabilities. No torch.

The first new token comes from the prefill; the second is the first that drafts and their acceptance decide. Whatever is
drafted, an exact rule draws from the target's distribution, so that counts can be tested with chi-square.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.compiler.prove import counts
from speccompile.compiler.prove.chi_square import ChiSquare, chi_square
from speccompile.compiler.prove.counts import Counts, Drawn
from speccompile.compiler.prove.filters import Reference, described, options
from speccompile.errors import ProofError
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.options import SamplingParams

P_VALUE = 1e-6
"""What chance does less often than this is no chance."""

SETTINGS = (SamplingParams(1.0), SamplingParams(0.7, top_k=5), SamplingParams(1.0, top_p=0.8))
"""Those that every bundle is proven at."""

MORE_SETTINGS = (*SETTINGS, SamplingParams(1.3, top_k=12, top_p=0.9, min_p=0.05, repetition_penalty=1.4))
"""Those of a small model, where a sample costs little."""


_HINT = "speculation changed what is drawn: please report it with the recipe"


@dataclass(frozen=True)
class Request:
    """How much is drawn: `count` generations of `new_tokens`, for each of some settings."""

    settings: tuple[SamplingParams, ...]
    count: int
    new_tokens: int = 2


def sample_count(weight_bytes: int) -> int:
    """How many generations prove a target of this size: 1000 up to 16 MB, at least 100.

    A sample costs passes over the weights, and what it adds falls with the root of their number.
    """
    return int(max(100, 1000 * math.sqrt(min(1.0, 16e6 / max(1, weight_bytes)))))


def make_prompt(bundle: Bundle, prompt: Sequence[int]) -> list[int]:
    """The beginning of a prompt and what the bundle makes of it greedily, so that there is something to look up; less
    where the buffers hold no more."""
    room = max(1, bundle.manifest.max_length - Request.new_tokens)
    begin = list(prompt[: min(8, room)])
    if len(begin) == room:
        return begin
    return begin + bundle.generate(begin, max_new_tokens=min(16, room - len(begin))).token_ids


def draw_all(bundle: Bundle, prompt: list[int], request: Request, seed: int = 0) -> list[Drawn]:
    """What the bundle draws after a prompt, for each of the settings; the same from equal bundles."""
    return [
        draw(bundle, prompt, sampling, request, seed + number * 1_000_000)
        for number, sampling in enumerate(request.settings)
    ]


def draw(bundle: Bundle, prompt: list[int], sampling: SamplingParams, request: Request, seed: int) -> Drawn:
    """Generations by the bundle's own loop, in full batches; each has a seed of its own, from `seed` on."""
    found, batch = list[Generation](), bundle.manifest.batch_size
    while len(found) < request.count:
        first = seed + len(found)
        found += bundle.generate_batch(
            [prompt] * batch, max_new_tokens=request.new_tokens, seed=range(first, first + batch), adaptive=False,
            **options(sampling),
        )  # fmt: skip
    return Drawn(prompt, sampling, found)


def check(manifest: Manifest, all_drawn: Sequence[Drawn], reference: Reference) -> list[dict[str, Any]]:
    """The rows of the proof, for all that a bundle has drawn.

    Tests the first new token, the first two together, and, where there are any, the tokens behind a whole path of
    accepted drafts. Raises ProofError where a test says that the distribution is not the target's, unless the bundle's
    rule is approximate: that is measured, and the row says so.
    """
    rows = list[dict[str, Any]]()
    for drawn in all_drawn:
        found = [counts.first(drawn, reference)]
        if all(len(each.token_ids) > 1 or each.finish_reason == "stop" for each in drawn.generations):
            found.append(counts.first_two(drawn, reference, manifest.eos_token_ids))
        if manifest.depth and (whole := counts.bonus_after_full_acceptance(drawn, reference, manifest.depth)):
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
    settings = ", ".join(f"{name} {value:g}" for name, value in described(sampling).items())
    return f"drafter {_kind(manifest)} ({manifest.tree}, {drafts} drafts), {settings}"


def _kind(manifest: Manifest) -> str:
    return str(manifest.plan["drafter"]["kind"])


def _accepted(drawn: Drawn) -> float | None:
    """Of the first rounds, the share in which a draft was accepted."""
    firsts = [each.path_lengths[0] for each in drawn.generations if each.path_lengths]
    return round(sum(length > 1 for length in firsts) / len(firsts), 3) if firsts else None
