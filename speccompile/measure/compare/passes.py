"""One run over all questions of one way, in a process of its own: what it holds is its own, and it ends alone.

`python -m speccompile.measure.compare.passes JOB ANSWER` does it.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.prompts import Question
from speccompile.measure.bench.conversation import PLAIN, TEMPLATE
from speccompile.measure.bench.costs import GraphCosts, curve_widths, measure_costs
from speccompile.measure.bench.measure import Answers, PromptRuns, measure
from speccompile.measure.bench.report import library_versions, mean_context
from speccompile.measure.bench.run import COST_REPEATS
from speccompile.measure.bench.timed import Timed, generate_timed
from speccompile.measure.compare.subprocess_job import run_apart, serve
from speccompile.runtime import Bundle, Generation


@dataclass(frozen=True)
class PassRequest:
    """What is run. baseline: the bundle without a drafter that decodes autoregressively beside it; None where `bundle`
    has no drafter, or does it itself. number: of the pass, from 1.
    options: of `measure`; None among them are left out."""

    bundle: str
    baseline: str | None
    engine: str
    threads: int | None
    questions: tuple[Question, ...]
    number: int
    options: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"questions": [asdict(each) for each in self.questions]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PassRequest":
        questions = tuple(
            Question(tuple(each["turns"]), each["category"], each["speed_bench"]) for each in data["questions"]
        )
        return cls(**(data | {"questions": questions}))


@dataclass(frozen=True)
class MeasuredPass:
    """What one run showed. cases: each with one repeat. memory: bytes of a process that has this bundle alone open and
    has generated. costs: over `context` committed tokens, timed when all was generated. beside: what decoded
    autoregressively beside it, "none" for the bundle without a drafter, "own" for the same bundle."""

    manifest: Manifest
    cases: tuple[PromptRuns, ...]
    beside: str
    exact: bool
    kernels: str | None
    threads: int | None
    conversation: str | None
    memory: dict[str, int]
    context: int
    costs: GraphCosts
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: what the file holds."""
        return asdict(replace(self, manifest=None)) | {"manifest": self.manifest.to_json()}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, data: dict[str, Any], file: str) -> "MeasuredPass":
        """Inverse of `to_json`; file: where the data comes from."""
        costs = data["costs"]
        read = {
            "manifest": Manifest.from_json(data["manifest"], file),
            "cases": tuple(map(_case, data["cases"])),
            "costs": GraphCosts(
                {int(width): each for width, each in costs["verify"].items()}, costs["draft"], costs["host"]
            ),
        }
        return cls(**(data | read))


def _case(data: dict[str, Any]) -> PromptRuns:
    ours, theirs = (tuple(map(_answers, data[way])) for way in ("speculative", "autoregressive"))
    return PromptRuns(data["number"], ours, theirs, data["group"])


def _answers(turns: list[dict[str, Any]]) -> Answers:
    return tuple(Timed(Generation(**each["generation"]), each["first_token"], tuple(each["gaps"])) for each in turns)


def run_pass(job: PassRequest) -> MeasuredPass:
    """Run it in this process. Raises what `Bundle.open`, `measure` and `measure_costs` raise."""
    bundle = Bundle.open(job.bundle, engine=job.engine, threads=job.threads)
    options = {name: value for name, value in job.options.items() if value is not None}
    # One generation, so that what a bundle holds is there; its tokens are nobody's.
    generate_timed(bundle, [0], **options | {"max_new_tokens": 1 + bundle.manifest.tokens})
    memory = bundle.engine.memory()
    baseline = bundle
    if job.baseline is not None:
        baseline = Bundle.open(job.baseline, engine=job.engine, threads=job.threads)
    turns: dict[str, Any] = {"repeats": 1, "first_run": job.number - 1, "learning": True}
    cases = measure(bundle, job.questions, chat=bundle.chat_template, baseline=baseline, **turns, **options)
    context = max(1, min(mean_context(cases), bundle.manifest.max_length - 2))
    asks = any(question.category is not None for question in job.questions)
    return MeasuredPass(
        manifest=bundle.manifest,
        cases=tuple(cases),
        beside="own" if baseline is bundle else "none",
        exact=bundle.exact,
        kernels=bundle.kernels,
        threads=bundle.engine.threads,
        conversation=(TEMPLATE if bundle.chat_template else PLAIN) if asks else None,
        memory=memory,
        context=context,
        costs=_costs(bundle, context),
        versions=library_versions(bundle.entry.backend),
    )


def _costs(bundle: Bundle, context: int) -> GraphCosts:
    """Of the widths that rounds of this bundle have."""
    manifest = bundle.manifest
    widths = [width for width in curve_widths(manifest) if width <= manifest.tokens + 1]
    return measure_costs(bundle, widths, context=context, repeats=COST_REPEATS)


def measure_way(job: PassRequest) -> MeasuredPass:
    """Run it in a process of its own. Raises what `run_pass` raises, and EngineError for one that ended otherwise."""
    return MeasuredPass.from_json(run_apart(__name__, job.to_json(), f"measuring {Path(job.bundle).name}"), job.bundle)


if __name__ == "__main__":
    serve(lambda data: run_pass(PassRequest.from_json(data)).to_json())
