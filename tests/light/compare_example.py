"""Passes of toy methods, for the tests of what a comparison makes of them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccompile.bundle.prompts import Question
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.measure import PromptRuns
from speccompile.measure.compare.job import Comparison, Options
from speccompile.measure.compare.passes import MeasuredPass, PassRequest
from speccompile.measure.compare.report import ComparisonReport
from speccompile.measure.compare.run import run_comparison
from speccompile.runtime import Generation
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE, timed
from tests.light.fake_bundle import toy_manifest

QUESTIONS = [
    {"question_id": 1, "category": "writing", "turns": ["a"]},
    {"question_id": 2, "category": "rag", "turns": ["b"]},
]
METHODS = "lookup: {kind: prompt_lookup, tokens: 4}\ndrafter: {kind: model, model: drafter, tokens: 4}\n"

SPEEDS = {"prompt_lookup": 2.0, "model": 4.0, "layer_skip": 0.5}
"""Kind -> how many times as fast as autoregression it is."""


def toy_pass(
    kind: str, questions: Sequence[Question], *, wrong: bool = False, number: int = 1, **changes: object
) -> MeasuredPass:
    """Return one pass of a method of this kind: 7 tokens a question, in three rounds. wrong: it gives other tokens."""
    ours = replace(SPECULATIVE, seconds=1.4 / SPEEDS.get(kind, 1), tokens_per_second=5.0 * SPEEDS.get(kind, 1))
    if wrong:
        ours = replace(ours, token_ids=[*ours.token_ids[:-1], 99])
    cases = [
        PromptRuns(index, _ours(kind, ours), (timed(AUTOREGRESSIVE),), each.group)
        for index, each in enumerate(questions, 1)
    ]
    speculative = kind != "none"
    plan = {"drafter": {"kind": kind}, "verify": {"method": "exact", "exact": True, "parameters": {}}}
    return MeasuredPass(
        manifest=toy_manifest(speculative=speculative, plan=plan, **changes),  # type: ignore[arg-type]
        cases=tuple(cases),
        beside="none" if speculative else "own",
        exact=True,
        kernels="avx2",
        threads=2,
        conversation="plain",
        memory={"resident": 90_000_000},
        context=20,
        costs=GraphCosts({1: 0.02 * number, 5: 0.04 * number}, 0.01 * number if speculative else None, 0.001),
        versions={"speccompile": "0"},
    )


def _ours(kind: str, generation: Generation):  # type: ignore[no-untyped-def]
    return (timed(generation),) if kind != "none" else ()


class Workshop:
    """Builds folders that name their kind, and measures them by `toy_pass`; keeps what it did."""

    def __init__(self, **failing: Exception) -> None:
        """failing: kind -> what its measurement raises."""
        self.built: list[str] = []
        self.measured: list[tuple[str, int]] = []
        self.jobs: list[PassRequest] = []
        self.failing, self.wrong = failing, False

    def build(self, method, plan, folder: Path) -> None:  # type: ignore[no-untyped-def]
        folder.mkdir(parents=True)
        (folder / "kind").write_text(plan.drafter.kind)
        self.built.append(folder.name)

    def measure(self, job: PassRequest) -> MeasuredPass:
        kind = (Path(job.bundle) / "kind").read_text()
        if kind in self.failing:
            raise self.failing[kind]
        self.jobs.append(job)
        self.measured.append((Path(job.bundle).name, job.number))
        return toy_pass(kind, job.questions, wrong=self.wrong and kind != "none", number=job.number)


def read_job(
    recipe: Path, *overrides: str, questions=QUESTIONS, methods: str | None = METHODS, **options
) -> Comparison:  # type: ignore[no-untyped-def]
    """Read a comparison of these methods on these questions, beside the recipe; None for the default methods."""
    folder = recipe.parent if recipe.is_file() else recipe
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    file = folder / "methods.yaml"
    if methods is not None:
        file.write_text(methods)
    given: dict[str, Any] = {
        "repeats": 2,
        "output": folder / "out",
        "methods": None if methods is None else file,
    } | options
    return Comparison.read(recipe, overrides, Options(folder / "questions.jsonl", **given))


def run(job: Comparison, workshop: Workshop) -> ComparisonReport:
    """Run a comparison with builds and measurements that are made up."""
    return run_comparison(job, workshop.measure, workshop.build)
