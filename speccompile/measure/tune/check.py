"""The prediction against what `bench` measures: the chosen recipe is built once more, and generates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.measure.bench import measure
from speccompile.measure.bench.mode import make_way
from speccompile.measure.tune.predict import Candidate
from speccompile.measure.tune.space import TunedRecipe
from speccompile.progress import log_step
from speccompile.runtime import Bundle

REPEATS = 3


@dataclass(frozen=True)
class Check:
    """Tokens per second without prefill, in rounds of full length, and as multiples of those without drafts.

    measured: medians over prompts and repeats; None where no generation had a round. Errors are those of predictions,
    as a share of what was measured. That of the speed is as large as the machine's speed has changed since: how fast
    it was then and is now shows in the autoregressive generations, which the speedup is relative to.
    """

    predicted: float
    measured: float | None
    measured_autoregressive: float | None
    error: float | None
    predicted_speedup: float
    measured_speedup: float | None
    speedup_error: float | None


def check(
    source: TunedRecipe,
    choice: Candidate,
    autoregressive: Candidate,
    prompts: Sequence[str | list[int]],
    generating: dict[str, Any],
) -> Check:
    """Build the choice and run it as `speccompile bench --fixed-draft-length` does, both ways in turns."""
    from speccompile.compiler.build import build  # imports torch

    with TemporaryDirectory(prefix="speccompile-tune-") as work:
        folder = Path(work) / "check"
        with log_step(f"building {choice.drafter} to check it"):
            build(source.planned(*choice.settings), folder, prove=False)
        bundle = Bundle.open(folder, engine=source.engine.name, threads=choice.threads, verify=False)
        cases = measure(bundle, prompts, repeats=REPEATS, adaptive=False, **generating)
    theirs = make_way([case.autoregressive for case in cases]).decode_tokens_per_second
    ours = make_way([case.speculative for case in cases]).decode_tokens_per_second if choice.drafts else theirs
    expected, predicted = choice.tokens_per_second, choice.tokens_per_second / autoregressive.tokens_per_second
    if not ours or not theirs:
        return Check(expected, ours, theirs, None, predicted, None, None)
    speedup = ours / theirs
    return Check(expected, ours, theirs, expected / ours - 1, predicted, speedup, predicted / speedup - 1)
