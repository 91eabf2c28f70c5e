"""Run a comparison: plan, build and measure its methods, and resume an interrupted one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from speccompile import __version__
from speccompile.bundle.prompts import Question, read_questions
from speccompile.errors import SpeccompileError, UsageError
from speccompile.machine.executor import LOCAL, Executor, Task
from speccompile.machine.resource_errors import tightest_memory_limit
from speccompile.machine.system import processor
from speccompile.measure.compare.builds import build_way
from speccompile.measure.compare.methods import AUTOREGRESSIVE, Method, check_comparable, default_methods, read_ways
from speccompile.measure.compare.passes import MeasuredPass, PassRequest, measure_way
from speccompile.measure.compare.report import ComparisonReport, Refusal, make_comparison
from speccompile.measure.compare.store import Store
from speccompile.measure.tune.space import TunedRecipe
from speccompile.plan.head import HeadPlan
from speccompile.progress import LOGGER
from speccompile.recipe import ModelPlan, Plan

Measure = Callable[[PassRequest], MeasuredPass]
Build = Callable[[Method, Plan, Path], None]


@dataclass(frozen=True)
class Options:
    """Options of a comparison. ways: a file of methods, None for the default ones. index: see
    `methods.default_methods`. output: build/<name>-ways by default. sampling: options of `Bundle.generate_batch`, None
    if not given."""

    prompts: Path
    ways: Path | None = None
    index: Path | None = None
    output: Path | None = None
    engine: str | None = None
    threads: int | None = None
    max_new_tokens: int = 128
    repeats: int = 3
    adaptive: bool = False
    remember: bool = True
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Checked comparison that has not run yet. ways: the methods, autoregression first."""

    source: TunedRecipe
    options: Options
    ways: tuple[Method, ...]
    questions: tuple[Question, ...]
    store: Store

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str], options: Options) -> "Comparison":
        """Read and check a comparison, quickly and without torch. Raise RecipeError, UsageError or PromptError."""
        source = TunedRecipe.of(path, overrides, options.engine)
        if options.sampling.get("temperature") and source.plan.decoding == "greedy":
            raise UsageError(
                f"--temperature: received {options.sampling['temperature']:g}, expected 0: the recipe decodes greedily",
                hint="add --set decoding=sampling, or leave --temperature out",
            )
        questions = read_questions(options.prompts)
        ways = read_ways(options.ways, source) if options.ways else default_methods(source, options.index)
        output = options.output or Path("build") / f"{source.plan.name}-ways"
        plain = Method(AUTOREGRESSIVE, source.none_settings())
        return cls(source, options, (plain, *ways), tuple(questions), Store(output))

    def run(
        self, measure: Measure = measure_way, build: Build | None = None, pool: Executor = LOCAL
    ) -> ComparisonReport:
        """Build and measure every method that is not done yet, and return the report.

        Every pass covers all methods, and each alternates with autoregression, question by question: other load affects
        all alike. pool: executor whose machines see this comparison's folder and models. A method that cannot be built
        or measured is reported with the reason. An error of autoregression propagates.
        """

        def build_it(way: Method, plan: Plan, output: Path) -> None:
            build_way(self.source, way, output, remember=self.options.remember)

        work = _ComparisonRun(self, measure, build or build_it, pool)
        with self.store.opened(self._key()):
            work.plan()
            for number in range(1, self.options.repeats + 1):
                work.do(self.ways[:: 1 if number % 2 else -1], number)
            comparison = self._report(work.refused)
            self.store.finish(comparison.to_json())
        return comparison

    def plan(self, way: Method) -> Plan:
        """Return the plan of a method. Raise RecipeError or CheckpointError if the recipe cannot have it."""
        plan = self.source.planned(*way.settings)
        check_comparable(self.source, plan)
        return plan

    def _report(self, refused: dict[str, Refusal]) -> ComparisonReport:
        passes = {
            way: [self.store.get(way, number) for number in range(1, self.options.repeats + 1)]
            for way in self.ways
            if way.name not in refused
        }
        return make_comparison(self.source.plan.name, self.source.engine.name, passes, refused, self.options_json())

    def options_json(self) -> dict[str, Any]:
        """Return the options that all methods share."""
        options = self.options
        return {
            "prompts": len(self.questions),
            "max_new_tokens": options.max_new_tokens,
            "repeats": options.repeats,
            "draft_length": "adaptive" if options.adaptive else "fixed",
            "decoding": self.source.plan.decoding,
            **self._sampling(),
        }

    def pass_options(self) -> dict[str, Any]:
        """Return the options of every generation."""
        options = self.options
        return {"max_new_tokens": options.max_new_tokens, "adaptive": options.adaptive} | self._sampling()

    def _sampling(self) -> dict[str, Any]:
        given = {name: value for name, value in self.options.sampling.items() if value is not None}
        if not given.get("temperature"):
            return given
        return {"seed": 0} | given

    def _key(self) -> dict[str, Any]:
        """Return the key that must be unchanged to resume a comparison. Only the number of repeats may grow."""
        options, plan = self.options, self.source.plan
        recipe = plan.to_json()
        for key in ("drafter", "graphs", "verify", "notes"):
            del recipe[key]  # the methods decide these
        common = self.options_json() | {"threads": options.threads, "engine": self.source.engine.name}
        del common["repeats"]
        return {
            "recipe": recipe,
            "prompts": sha256(options.prompts.read_bytes()).hexdigest(),
            "options": common,
            "versions": _versions(),
            "machine": {name: processor()[name] for name in ("architecture", "name")},
        }


class _ComparisonRun:
    """Running comparison: a method is built when it is first measured. refused: method -> reason of its failure."""

    def __init__(self, job: Comparison, measure: Measure, build: Build, pool: Executor) -> None:
        self._job, self._measure, self._build, self._pool = job, measure, build, pool
        self._plans: dict[Method, Plan] = {}
        self.refused: dict[str, Refusal] = {}

    def plan(self) -> None:
        """Plan every method and refuse those that the recipe cannot have, before any work."""
        for way in self._job.ways:
            try:
                plan = self._plans[way] = self._job.plan(way)
            except SpeccompileError as error:
                self._refuse(way, error)
            else:
                drafter = plan.drafter.to_json()
                self._job.store.claim(way, {"settings": way.settings, "drafter": drafter, "models": _models(plan)})

    def do(self, ways: Sequence[Method], number: int) -> None:
        """Run one pass of each method that is neither done nor refused."""
        wanted = self._possible([way for way in ways if not self._job.store.has(way, number)])
        if not wanted:
            return
        plain = self._job.ways[0]
        missing = [way for way in dict.fromkeys((plain, *wanted)) if not self._job.store.bundle(way).is_dir()]
        builds = [self._building(way) for way in missing]  # an existing bundle is complete
        for place, built in self._pool.run(builds):
            if isinstance(built, SpeccompileError):
                self._refuse(missing[place], built)
        wanted = self._possible(wanted)
        for place, found in self._pool.run([self._measuring(way, number) for way in wanted]):
            if isinstance(found, SpeccompileError):
                self._refuse(wanted[place], found)
            else:
                self._job.store.add(wanted[place], number, found)

    def _possible(self, ways: Sequence[Method]) -> list[Method]:
        return [way for way in ways if way.name not in self.refused]

    def _building(self, way: Method) -> Task[None]:
        folder = self._job.store.bundle(way).absolute()
        return Task(f"building {way.name}", self._build, (way, self._plans[way], folder))

    def _measuring(self, way: Method, number: int) -> Task[MeasuredPass]:
        store, plain = self._job.store, self._job.ways[0]
        bundle = store.bundle(way)
        baseline = None if way is plain else _baseline(bundle, store.bundle(plain))
        about = f"measuring {way.name}, pass {number} of {self._job.options.repeats}"
        return Task(about, self._measure, (self._pass(way, bundle, baseline, number),), exclusive=True)

    def _refuse(self, way: Method, error: SpeccompileError) -> None:
        """Record a failed method. Raise the error of autoregression: nothing can be compared without it."""
        if way is self._job.ways[0]:
            raise error
        LOGGER.warning("%s is left out: %s", way.name, error)
        self.refused[way.name] = Refusal(way.name, way.settings, str(error), error.hint)

    def _pass(self, way: Method, bundle: Path, baseline: Path | None, number: int) -> PassRequest:
        return PassRequest(
            bundle=str(bundle.resolve()),
            baseline=None if baseline is None else str(baseline.resolve()),
            engine=self._job.source.engine.name,
            threads=self._job.options.threads,
            questions=self._job.questions,
            number=number,
            options=self._job.pass_options(),
        )


def _baseline(bundle: Path, plain: Path) -> Path | None:
    """Return the bundle without a drafter if it fits into memory together with `bundle`; else log and return None.

    None means that the method's own bundle runs the autoregressive mode."""
    size = sum(file.stat().st_size for folder in (bundle, plain) for file in folder.rglob("*") if file.is_file())
    if size < tightest_memory_limit().size:
        return plain
    LOGGER.warning(
        "note: %s and the bundle without a drafter are larger than the memory together: it decodes autoregressively "
        "by itself", bundle.name,
    )  # fmt: skip
    return None


def _models(plan: Plan) -> dict[str, list[list[Any]]]:
    """Return model reference -> (name, bytes, mtime in ns) of every file, for the target and the drafters."""
    models: list[ModelPlan | HeadPlan] = [plan.target, *plan.drafter.models]
    models += [plan.drafter.head] if plan.drafter.head else []
    return {
        model.reference: [
            [file.as_posix(), (stat := (model.folder / file).stat()).st_size, stat.st_mtime_ns]
            for file in sorted(model.files)
        ]
        for model in models
    }


def _versions() -> dict[str, str]:
    import onnxruntime

    return {"speccompile": __version__, "onnxruntime": onnxruntime.__version__}
