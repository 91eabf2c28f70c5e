"""One pass of one method over all questions, in a separate process: its memory and a crash stay its own.

`python -m speccompile.measure.compare.passes` runs it. It tells the figures so far after each prompt.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from speccompile.bundle import open_bundle
from speccompile.bundle.image_quality import ImageQuality, image_quality
from speccompile.bundle.manifest import Manifest
from speccompile.bundle.prompts import Question
from speccompile.measure.bench.conversation import PLAIN, TEMPLATE
from speccompile.measure.bench.costs import GraphCosts, curve_widths, measure_costs
from speccompile.measure.bench.groups import OVERALL, make_group
from speccompile.measure.bench.measure import Answers, PromptRuns, measure
from speccompile.measure.bench.report import library_versions, mean_context
from speccompile.measure.bench.run import COST_REPEATS
from speccompile.measure.bench.sources import example
from speccompile.measure.bench.timed import Timed, generate_timed
from speccompile.measure.compare.dropping import Leader, Verdict, find_verdict
from speccompile.measure.compare.limit import TimeLimit
from speccompile.measure.compare.subprocess_job import UNLIMITED, Watch, run_apart, serve
from speccompile.runtime import Bundle, Generation


@dataclass(frozen=True)
class PassRequest:
    """Request for one pass. baseline: bundle without a drafter that runs the autoregressive mode; None if `bundle` runs
    it itself, or has no drafter. number: number of the pass, from 1. leaders: the pass ends when the method can beat
    none of them any more; () to run all questions. options: options of `measure`; those that are None are omitted."""

    bundle: str
    baseline: str | None
    engine: str
    threads: int | None
    questions: tuple[Question, ...]
    number: int
    options: dict[str, Any]
    leaders: tuple[Leader, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"questions": [asdict(each) for each in self.questions]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PassRequest":
        questions = tuple(
            Question(**each | {"turns": tuple(each["turns"]), "languages": tuple(map(tuple, each["languages"])),
                               "images": tuple(each["images"])})
            for each in data["questions"]
        )  # fmt: skip
        return cls(**(data | {"questions": questions, "leaders": tuple(map(_leader, data["leaders"]))}))


@dataclass(frozen=True)
class MeasuredPass:
    """Results of one pass. cases: one repeat each. memory: bytes of a process that has opened only this bundle and has
    generated. costs: over `context` committed tokens, timed after all generations. dropped: why the pass ended before
    its last question, without costs. beside: bundle of the autoregressive mode, "none" for the one without a drafter,
    "own" for the same bundle. pictures: quality behind them, where the build measured it."""

    manifest: Manifest
    cases: tuple[PromptRuns, ...]
    beside: str
    exact: bool
    kernels: str | None
    threads: int | None
    conversation: str | None
    memory: dict[str, int]
    context: int
    costs: GraphCosts | None
    versions: dict[str, str]
    dropped: Verdict | None = None
    pictures: ImageQuality | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, the content of the file."""
        return asdict(replace(self, manifest=None)) | {"manifest": self.manifest.to_json()}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, data: dict[str, Any], file: str) -> "MeasuredPass":
        """Invert `to_json`. file: source of the data, for messages."""
        dropped = data["dropped"]
        read = {
            "manifest": Manifest.from_json(data["manifest"], file),
            "cases": tuple(map(_case, data["cases"])),
            "costs": _graph_costs(data["costs"]),
            "dropped": None if dropped is None else Verdict(**dropped),
            "pictures": ImageQuality.from_json(data.get("pictures")),
        }
        return cls(**(data | read))

    def figures(self) -> dict[str, Any]:
        """Return the figures of this pass, see `figures`."""
        return figures(self.cases)


def figures(cases: Sequence[PromptRuns]) -> dict[str, Any]:
    """Return the figures that people see while a method is measured, over these prompts: prompts, ratio,
    tokens_per_second, mean_accepted."""
    group = make_group(OVERALL, cases)
    ours = group.speculative or group.autoregressive
    ratio = 1.0 if group.speedup is None else group.speedup
    return {"prompts": len(cases), "ratio": ratio} | asdict(ours)


def interleaved(questions: Sequence[Question]) -> list[int]:
    """Return indices of the questions with the first one of every task, then the second ones, and so on: a method is
    dropped no earlier than every task has been measured."""
    seen: dict[str, int] = {}
    turns = []
    for index, question in enumerate(questions):
        seen[question.group] = seen.get(question.group, 0) + 1
        turns.append((seen[question.group], index))
    return [index for _, index in sorted(turns)]


def _graph_costs(data: dict[str, Any] | None) -> GraphCosts | None:
    if data is None:
        return None
    return GraphCosts({int(width): each for width, each in data["verify"].items()}, data["draft"], data["host"])


def _leader(data: dict[str, Any]) -> Leader:
    return Leader(data["task"], data["name"], {int(number): tuple(each) for number, each in data["speeds"].items()})


def _case(data: dict[str, Any]) -> PromptRuns:
    ours, theirs = (tuple(map(_answers, data[method])) for method in ("speculative", "autoregressive"))
    return PromptRuns(data["number"], ours, theirs, data["group"])


def _answers(turns: list[dict[str, Any]]) -> Answers:
    return tuple(Timed(Generation(**each["generation"]), each["first_token"], tuple(each["gaps"])) for each in turns)


class _WatchedPass:
    """Pass in progress. order: of its questions; verdict: why it ends before the last one."""

    def __init__(self, job: PassRequest, tell: Watch) -> None:
        self._job, self._tell, self.order = job, tell, interleaved(job.questions)
        self.verdict: Verdict | None = None

    def numbered(self, cases: Sequence[PromptRuns]) -> list[PromptRuns]:
        """Return cases in the order of the request, with its numbers."""
        found = [replace(case, number=self.order[case.number - 1] + 1) for case in cases]
        return sorted(found, key=lambda case: case.number)

    def go_on(self, measured: Sequence[PromptRuns]) -> bool:
        """Tell the figures so far, and return whether to measure the next question."""
        cases, leaders = self.numbered(measured), self._job.leaders
        self._tell(figures(cases))
        if leaders and len(cases) < len(self._job.questions):
            self.verdict = find_verdict(cases, leaders)
        return self.verdict is None


def run_pass(job: PassRequest, tell: Watch = lambda _: None) -> MeasuredPass:
    """Run a pass in this process. tell: receives `figures` after each question. Raise the errors of `Bundle.open`,
    `measure` and `measure_costs`."""
    bundle = Bundle.open(job.bundle, engine=job.engine, threads=job.threads)
    options = {name: value for name, value in job.options.items() if value is not None}
    # One generation allocates the bundle's lazy memory. Its tokens are not used.
    prompt, languages = example(bundle.manifest)
    generate_timed(bundle, prompt, **options | languages | {"max_new_tokens": 1 + bundle.manifest.tokens})
    memory = bundle.engine.memory()
    baseline = bundle
    if job.baseline is not None:
        baseline = Bundle.open(job.baseline, engine=job.engine, threads=job.threads)
    turns: dict[str, Any] = {"repeats": 1, "first_run": job.number - 1, "learning": True}
    watched = _WatchedPass(job, tell)
    questions = [job.questions[index] for index in watched.order]
    measured = measure(
        bundle, questions, chat=bundle.chat_template, baseline=baseline, go_on=watched.go_on, **turns, **options
    )
    cases = watched.numbered(measured)
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
        costs=None if watched.verdict else _costs(bundle, context),
        dropped=watched.verdict,
        versions=library_versions(bundle.entry.backend),
        pictures=image_quality(open_bundle(Path(job.bundle), verify=False).proof, bundle.engine_name),
    )


def _costs(bundle: Bundle, context: int) -> GraphCosts:
    """Measure the costs of the widths that rounds of this bundle use."""
    manifest = bundle.manifest
    widths = [width for width in curve_widths(manifest) if width <= manifest.tokens + 1]
    return measure_costs(bundle, widths, context=context, repeats=COST_REPEATS)


def measure_method(job: PassRequest, watch: Watch | None = None, limit: TimeLimit = UNLIMITED) -> MeasuredPass:
    """Run a pass in a separate process. watch, limit: see `Subprocess.run`, whose errors it raises beside those of
    `run_pass`."""
    about = f"measuring {Path(job.bundle).name}"
    return MeasuredPass.from_json(run_apart(__name__, job.to_json(), about, watch, limit), job.bundle)


if __name__ == "__main__":
    serve(lambda data, tell: run_pass(PassRequest.from_json(data), tell).to_json())
