"""Work of a comparison: which methods are built and measured, and which are dropped because they cannot win."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from speccompile.errors import SpeccompileError
from speccompile.machine.executor import Executor, LocalExecutor, Task
from speccompile.machine.resource_errors import tightest_memory_limit
from speccompile.measure.compare.board import BUILDING, MEASURING, Board
from speccompile.measure.compare.dropping import Leader, Verdict, find_verdict, leaders_of
from speccompile.measure.compare.job import Comparison
from speccompile.measure.compare.merge import differences_of, merge_passes
from speccompile.measure.compare.methods import Method
from speccompile.measure.compare.passes import MeasuredPass, PassRequest
from speccompile.measure.compare.report import DroppedMethod, Refusal
from speccompile.plan.head import HeadPlan
from speccompile.progress import LOGGER
from speccompile.recipe import ModelPlan, Plan

Measure = Callable[[PassRequest], MeasuredPass]
Build = Callable[[Method, Plan, Path], None]


class Work:
    """Running comparison: a method is built when it is first measured. found: method -> its passes so far, a dropped
    one's incomplete pass included; refused: method -> reason of its failure; verdicts: method -> why it was dropped."""

    def __init__(self, job: Comparison, measure: Measure, build: Build, pool: Executor, board: Board) -> None:
        self._job, self._measure, self._build, self._pool, self._board = job, measure, build, pool, board
        self._is_local = isinstance(pool, LocalExecutor)
        self._plans: dict[Method, Plan] = {}
        self.found: dict[Method, list[MeasuredPass]] = {method: [] for method in job.methods}
        self.refused: dict[str, Refusal] = {}
        self.verdicts: dict[str, Verdict] = {}

    def plan(self) -> None:
        """Plan every method, refuse those that the recipe cannot have, and read what an earlier run has left."""
        for method in self._job.methods:
            try:
                plan = self._plans[method] = self._job.plan(method)
            except SpeccompileError as error:
                self._refuse(method, error)
            else:
                drafter = plan.drafter.to_json()
                self._job.store.claim(
                    method, {"settings": method.settings, "drafter": drafter, "models": _models(plan)}
                )
                self._recall(method)
        self._board.start()

    def do(self, methods: Sequence[Method], number: int) -> None:
        """Run one pass of each method that needs it.

        On this machine a method is built and measured before the next one, which must then beat the best before it.
        Raise TimeIsUpError where the time is up, or too short for one more later pass."""
        limit, estimate = self._board.limit, self._board.estimate
        if number > 1:
            self._drop(number - 1)
        wanted = self._possible([method for method in methods if len(self.found[method]) < number])
        for group in [[method] for method in wanted] if self._is_local else [wanted]:
            limit.check(estimate.whole() if number > 1 else 0.0)
            self._build_missing(group)
            self._measure_all(self._possible(group), number)

    def dropped(self) -> list[DroppedMethod]:
        """Return the dropped methods with their figures."""
        return [
            DroppedMethod.of(method, self.found[method], self.verdicts[method.name])
            for method in self._job.methods
            if method.name in self.verdicts and method.name not in self.refused
        ]

    def complete(self) -> dict[Method, list[MeasuredPass]]:
        """Return the passes of the methods that ran all questions at least once."""
        return {
            method: found
            for method, found in self.found.items()
            if found and found[0].dropped is None and method.name not in self.refused
        }

    def _recall(self, method: Method) -> None:
        store, found = self._job.store, self.found[method]
        for number in range(1, self._job.options.repeats + 1):
            if not store.has(method, number):
                break
            found.append(store.get(method, number))
        verdict = found[0].dropped if found else None
        if verdict is not None and not self._still_holds(verdict):
            found.clear()  # measured again: the method that it lost to is not in this comparison
        self._board.known(method.name, built=store.bundle(method).is_dir(), found=found)
        if found and verdict is not None:
            self._enter(method, verdict)

    def _still_holds(self, verdict: Verdict) -> bool:
        return self._job.options.drop and verdict.best in {method.name for method in self._job.methods}

    def _possible(self, methods: Sequence[Method]) -> list[Method]:
        return [method for method in methods if method.name not in self.refused and method.name not in self.verdicts]

    def _build_missing(self, methods: Sequence[Method]) -> None:
        """Build the bundles that are not there; an existing one is complete."""
        plain = self._job.methods[0]
        wanted = dict.fromkeys((plain, *methods)) if methods else {}
        missing = [method for method in wanted if not self._job.store.bundle(method).is_dir()]
        for place, built in self._pool.run([self._building(method) for method in missing]):
            if isinstance(built, SpeccompileError):
                self._refuse(missing[place], built)
            else:
                self._board.built(missing[place].name)

    def _measure_all(self, methods: Sequence[Method], number: int) -> None:
        for place, found in self._pool.run([self._measuring(method, number) for method in methods]):
            method = methods[place]
            if isinstance(found, SpeccompileError):
                self._refuse(method, found)
                continue
            self._job.store.add(method, number, found)
            self.found[method].append(found)
            self._board.figures(method.name, found.figures())
            if found.dropped is None:
                self._board.measured(method.name)
            else:
                self._enter(method, found.dropped)

    def _enter(self, method: Method, verdict: Verdict) -> None:
        self.verdicts[method.name] = verdict
        self._board.dropped(method.name, verdict)

    def _drop(self, number: int) -> None:
        """Drop the methods that cannot win by the first `number` passes."""
        leaders = self._leaders(number)
        for method, found in self.complete().items():
            if method is self._job.methods[0] or method.name in self.verdicts or not leaders:
                continue
            verdict = find_verdict(merge_passes(found[:number]), leaders)
            if verdict is not None:
                self._enter(method, verdict)

    def _leaders(self, number: int) -> list[Leader]:
        """Return the best methods by their first `number` passes; only those that keep the tokens may lead."""
        if not self._job.options.drop:
            return []
        cases = {method.name: (found[0], merge_passes(found[:number])) for method, found in self.complete().items()}
        kept = {
            name: merged
            for name, (one, merged) in cases.items()
            if one.exact and not differences_of(one.manifest, merged)
        }
        return leaders_of(kept) if kept else []

    def _building(self, method: Method) -> Task[None]:
        folder = self._job.store.bundle(method).absolute()
        return Task(
            f"building {method.name}", self._told(method, BUILDING, self._build), (method, self._plans[method], folder)
        )

    def _measuring(self, method: Method, number: int) -> Task[MeasuredPass]:
        store, plain = self._job.store, self._job.methods[0]
        bundle = store.bundle(method)
        baseline = None if method is plain else _baseline(bundle, store.bundle(plain))
        about = f"measuring {method.name}, pass {number} of {self._job.options.repeats}"
        request = self._pass(method, bundle, baseline, number)
        return Task(about, self._told(method, MEASURING, self._measure), (request,), exclusive=True)

    def _told(self, method: Method, state: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that tells the board that it begins. Another machine has no board."""
        return partial(self._begin, method.name, state, act) if self._is_local else act

    def _begin(self, name: str, state: str, act: Callable[..., Any], *arguments: Any) -> Any:
        self._board.begin(name, state)
        return act(*arguments)

    def _refuse(self, method: Method, error: SpeccompileError) -> None:
        """Record a failed method. Raise the error of autoregression: nothing can be compared without it."""
        if method is self._job.methods[0]:
            raise error
        self._board.refused(method.name, str(error))
        self.refused[method.name] = Refusal(method.name, method.settings, str(error), error.hint)

    def _pass(self, method: Method, bundle: Path, baseline: Path | None, number: int) -> PassRequest:
        is_first = number == 1 and method is not self._job.methods[0]
        return PassRequest(
            bundle=str(bundle.resolve()),
            baseline=None if baseline is None else str(baseline.resolve()),
            engine=self._job.source.engine.name,
            threads=self._job.options.threads,
            questions=self._job.questions,
            number=number,
            options=self._job.pass_options(),
            leaders=tuple(self._leaders(1)) if is_first else (),
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
