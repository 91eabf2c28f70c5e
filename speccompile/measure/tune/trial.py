"""Trials: one bundle per draft shape, with one engine per precision, built and measured."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from speccompile.bundle.manifest import Manifest
from speccompile.errors import PromptError
from speccompile.machine.executor import LOCAL, Executor, Task, run_all
from speccompile.measure.bench.costs import GraphCosts, allows_any_width, measure_costs
from speccompile.measure.tune.rounds import Rounds, rounds_of
from speccompile.measure.tune.space import DraftShape, TunedRecipe
from speccompile.progress import log_step
from speccompile.recipe import Plan
from speccompile.runtime import Bundle, Generation, GenerationKeywords

ONLY = "tuned"
"""Name of the engine for a drafter without weights."""


@dataclass(frozen=True)
class Trial:
    """Measurements of a bundle. rounds: of every prompt that has any, by precision; costs: by precision and threads."""

    manifest: Manifest
    rounds: dict[str | None, list[Rounds]]
    costs: dict[tuple[str | None, int], GraphCosts]


@dataclass(frozen=True)
class TrialRequest:
    """Bundle to try. widths: window widths to time in addition to those of decoding. settings: further settings of the
    recipe. accepting: whether to measure acceptance, which the first trial must."""

    shape: DraftShape
    widths: Sequence[int] = ()
    settings: Sequence[str] = ()
    accepting: bool = True


@dataclass
class TrialRunner:
    """Runner that builds and measures bundles, each in a temporary folder and without a proof."""

    source: TunedRecipe
    prompts: Sequence[str | list[int]]
    precisions: Sequence[str | None]
    threads: Sequence[int]
    repeats: int
    generation_options: dict[str, Any]
    """Options of `Bundle.generate`."""
    context: int | None = None
    """Number of committed tokens at which costs are measured. The first trial sets it for all."""
    plain: dict[int, list[Generation]] = field(default_factory=dict)
    """Threads -> autoregressive generations that have rounds, of the first trial."""
    texts: list[tuple[int, list[int]]] = field(default_factory=list)
    """(number of prompt tokens, all tokens) of the autoregressive generations of one thread count."""

    pool: Executor = LOCAL
    """Executor of the trials."""

    def try_all(self, wanted: Sequence[TrialRequest]) -> list[Trial]:
        """Build and measure all trials; the first one runs before the other trials, because it sets their context.

        Raise the errors of a build, and PromptError for prompts that the bundles cannot take."""
        if self.context is None and len(wanted) > 1:
            return [*self.try_all(wanted[:1]), *self.try_all(wanted[1:])]
        apart = replace(self, pool=LOCAL)  # a remote trial must not start further remote tasks
        tasks = [Task(f"trying {each.shape.label}", _try, (apart, each), exclusive=True) for each in wanted]
        found = run_all(self.pool, tasks)
        if self.context is None:
            first = found[0][1]
            self.context, self.plain, self.texts = first.context, first.plain, first.texts
        return [trial for trial, _ in found]

    def try_one(self, wanted: TrialRequest, folder: Path) -> Trial:
        """Build a trial in this folder and measure it in this process. Raise the errors of `try_all`."""
        from speccompile.compiler.build import build  # imports torch

        shape, bundle_folder = wanted.shape, folder / "bundle"
        with log_step(f"building {shape.label}"):
            build(self._plan(shape, wanted.settings), bundle_folder, prove=False)
        rounds: dict[str | None, list[Rounds]] = {}
        costs: dict[tuple[str | None, int], GraphCosts] = {}
        for precision in self.precisions:
            for threads in sorted(self.threads, reverse=True):
                name = precision or ONLY
                bundle = Bundle.open(bundle_folder, engine=name, threads=threads, verify=False)
                manifest = bundle.manifest
                if threads not in self.plain:
                    self.plain[threads] = self._generate(bundle, f"no drafts, threads {threads}", autoregressive=True)
                if wanted.accepting and precision not in rounds:
                    found = self._generate(bundle, f"{shape.label}, {name}", adaptive=False)
                    rounds[precision] = [rounds_of(each) for each in found]
                widths = {1, manifest.tokens + 1, *wanted.widths}
                if shape.tree is not None and allows_any_width(manifest):  # the host's trees vary in size
                    widths |= {drafts + 1 for each in rounds[precision] for drafts in each.drafts}
                costs[precision, threads] = self._measure(bundle, widths, threads)
        return Trial(manifest, rounds, costs)

    def _plan(self, shape: DraftShape, settings: Sequence[str]) -> Plan:
        """Return a plan with one engine per precision, named after it."""
        plans = {
            precision: self.source.planned(
                *self.source.shape_settings(shape), *self.source.precision_settings(precision), *settings
            )
            for precision in self.precisions
        }
        engines = [
            replace(engine, name=precision or ONLY) for precision, plan in plans.items() for engine in plan.engines
        ]
        return replace(next(iter(plans.values())), engines=tuple(engines))

    def _generate(self, bundle: Bundle, about: str, **way: Unpack[GenerationKeywords]) -> list[Generation]:
        """Generate for every prompt. Return the generations that have rounds; raise PromptError if none has."""
        generations = []
        bundle.reset()  # drop persistent drafter state from the same prompts in another decoding mode
        with log_step(f"generating for {len(self.prompts)} prompts: {about}"):
            for number, prompt in enumerate(self.prompts, 1):
                try:
                    generations.append(bundle.generate(prompt, **self.generation_options, **way))
                except PromptError as error:
                    raise PromptError(f"prompt {number}: {error}", hint=error.hint) from error
        if self.context is None:
            self.context = mean_context(generations, bundle.manifest.max_length)
        if not self.texts:
            prompts = map(bundle.token_ids, self.prompts)
            self.texts = [(len(p), [*p, *each.token_ids]) for p, each in zip(prompts, generations, strict=True)]
        with_rounds = [each for each in generations if each.rounds]
        if not with_rounds:
            raise PromptError(
                f"received {len(generations)} prompts whose generations end with their first token, expected one that "
                "goes on",
                hint="give other --prompts or more --max-new-tokens",
            )
        return with_rounds

    def _measure(self, bundle: Bundle, widths: Iterable[int], threads: int) -> GraphCosts:
        """Return costs, scaled to the machine's speed during the autoregressive generations.

        The scale is the ratio of the times of a window of one token, whose graph is equal in all bundles. It corrects
        for other load, and for rare slow rounds of generations, which a median of costs excludes.
        """
        assert self.context is not None, "generations come first"
        costs = measure_costs(bundle, sorted(widths), context=self.context, repeats=self.repeats)
        plain = median(one.verify_seconds / one.rounds for one in self.plain[threads])
        return costs.scaled(plain / costs.verify[1])


def _try(trials: TrialRunner, wanted: TrialRequest) -> tuple[Trial, TrialRunner]:
    """Run a trial in a temporary folder. Return it, and the runner with the values that the first trial sets."""
    with TemporaryDirectory(prefix="speccompile-tune-") as folder:
        return trials.try_one(wanted, Path(folder)), trials


def mean_context(generations: Sequence[Generation], capacity: int) -> int:
    """Return the mean number of committed tokens in the middle of a generation, at most what costs can measure."""
    middle = fmean(each.prompt_tokens + len(each.token_ids) / 2 for each in generations)
    return max(1, min(round(middle), capacity - 2))
