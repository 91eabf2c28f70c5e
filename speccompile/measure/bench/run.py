"""Benchmark of a bundle folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speccompile.bundle import open_bundle
from speccompile.bundle.image_quality import image_quality
from speccompile.bundle.prompts import Question
from speccompile.machine.system import available_cores
from speccompile.measure.bench.conversation import PLAIN, TEMPLATE
from speccompile.measure.bench.costs import curve_widths, measure_costs
from speccompile.measure.bench.measure import measure
from speccompile.measure.bench.report import Measurements, Report, make_report, mean_context
from speccompile.measure.bench.roofline import measure_reading
from speccompile.progress import log_step
from speccompile.runtime import Bundle

COST_REPEATS = 7
"""Number of timed runs per width: odd, so that the median is one of them."""


def run_bench(
    folder: Path,
    questions: Sequence[Question],
    *,
    engine: str | None = None,
    threads: int | None = None,
    max_new_tokens: int = 128,
    repeats: int = 3,
    adaptive: bool = True,
    **sampling: Any,
) -> Report:
    """Open a bundle, generate for every question in both decoding modes, and measure costs and memory bandwidth.

    `measure` and `Bundle.open` explain the options. A bundle that samples gets seed 0 by default. Raise the errors of
    both.
    """
    with log_step(f"opening {folder}"):
        bundle = Bundle.open(folder, engine=engine, threads=threads)
    if sampling.get("seed") is None and sampling.get("temperature") and bundle.manifest.decoding == "sampling":
        sampling["seed"] = 0
    options = {"max_new_tokens": max_new_tokens, "adaptive": adaptive} | sampling
    cases = measure(bundle, questions, repeats=repeats, chat=bundle.chat_template, **options)
    memory = bundle.engine.memory()  # before costs bind wider windows
    context = max(1, min(mean_context(cases), bundle.manifest.max_length - 2))
    widths = curve_widths(bundle.manifest, on_device=bundle.entry.provider != "cpu")
    asks = any(question.category is not None for question in questions)
    around = Measurements(
        conversation=(TEMPLATE if bundle.chat_template else PLAIN) if asks else None,
        memory=memory,
        costs=measure_costs(bundle, widths, context=context, repeats=COST_REPEATS),
        context=context,
        reading=measure_reading(folder, bundle.entry, bundle.engine.threads or available_cores()),
        pictures=image_quality(open_bundle(folder, verify=False).proof, bundle.engine_name),
    )
    return make_report(bundle, cases, threads=bundle.engine.threads, surroundings=around, **options)
