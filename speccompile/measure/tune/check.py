"""Check of a prediction against `bench`: build the chosen recipe again and measure its generations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.measure.bench import measure
from speccompile.measure.bench.mode import make_mode_statistics
from speccompile.measure.tune.predict import Candidate
from speccompile.measure.tune.space import TunedRecipe
from speccompile.progress import log_step
from speccompile.runtime import Bundle

REPEATS = 3


@dataclass(frozen=True)
class Check:
    """Predicted and measured tokens per second without prefill, in rounds of full length, and their speedups.

    measured: medians over prompts and repeats; None if no generation had a round. Errors are relative to the measured
    value. `error` includes any change of the machine's speed since the prediction. `speedup_error` does not: both
    speeds of a speedup are measured at the same time.
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
    """Build the choice and run it like `speccompile bench --fixed-draft-length`, alternating both decoding modes."""
    from speccompile.compiler.build import build  # imports torch

    with TemporaryDirectory(prefix="speccompile-tune-") as work:
        folder = Path(work) / "check"
        with log_step(f"building {choice.drafter} to check it"):
            build(source.planned(*choice.settings), folder, prove=False)
        bundle = Bundle.open(folder, engine=source.engine.name, threads=choice.threads, verify=False)
        cases = measure(bundle, prompts, repeats=REPEATS, adaptive=False, **generating)
    theirs = make_mode_statistics([case.autoregressive for case in cases]).decode_tokens_per_second
    ours = (
        make_mode_statistics([case.speculative for case in cases]).decode_tokens_per_second if choice.drafts else theirs
    )
    expected, predicted = choice.tokens_per_second, choice.tokens_per_second / autoregressive.tokens_per_second
    if not ours or not theirs:
        return Check(expected, ours, theirs, None, predicted, None, None)
    speedup = ours / theirs
    return Check(expected, ours, theirs, expected / ours - 1, predicted, speedup, predicted / speedup - 1)
