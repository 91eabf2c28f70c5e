"""Run a tuning: read the options, build and measure candidates, and choose."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.prompts import read_prompts
from speccompile.errors import UsageError
from speccompile.machine.executor import LOCAL, Executor, Task, run_all
from speccompile.machine.system import available_cores
from speccompile.measure.profile import own_profile
from speccompile.measure.tune.check import Check, check
from speccompile.measure.tune.layer_search import SEARCHED, SECONDS, LayerSearch, search_layers
from speccompile.measure.tune.predict import Candidate, LinearCost, choose
from speccompile.measure.tune.promising import promising
from speccompile.measure.tune.search import Search
from speccompile.measure.tune.space import DraftShape, TunedRecipe, draft_shapes, precisions
from speccompile.measure.tune.trial import TrialRunner
from speccompile.plan.recipe_source import one_of

COST_REPEATS = 40


@dataclass(frozen=True)
class Options:
    """Options of a tuning; None and () select the defaults. threads: engine threads to try. prompts: a file."""

    prompts: Path | None = None
    max_new_tokens: int | None = None
    repeats: int = COST_REPEATS
    threads: Sequence[int] = ()
    drafts: Sequence[int] = ()
    trees: Sequence[str] = ()
    precisions: Sequence[str] = ()
    temperature: float = 0.0
    check: bool = False
    predict: bool = False
    """Skip shapes that cannot win by this machine's profile."""
    search_seconds: float | None = None
    """Seconds to search for layers if the drafter is a subset of the target's layers; 0 keeps the recipe's layers."""


@dataclass(frozen=True)
class Tuning:
    """Result of a tuning. candidates: the fastest first. context: number of committed tokens at which costs were
    measured. layers: result of the layer search, or None.

    draft_lines: (precision, threads, cost line) of chains: seconds of a draft as base + slope * drafts.
    """

    recipe: str
    engine: str
    prompts: int
    max_new_tokens: int
    temperature: float
    context: int
    candidates: tuple[Candidate, ...]
    draft_lines: tuple[tuple[str | None, int, LinearCost], ...]
    overrides: tuple[str, ...]
    check: Check | None
    layers: LayerSearch | None = None

    @property
    def choice(self) -> Candidate:
        return self.candidates[0]

    @property
    def autoregressive(self) -> Candidate:
        """Return the fastest candidate without a drafter."""
        return next(each for each in self.candidates if not each.drafts)

    @property
    def settings(self) -> tuple[str, ...]:
        """Return KEY=VALUE settings of the chosen recipe; the overrides of the tuning come first."""
        layers = (self.layers.setting,) if self.layers and self.choice.drafts else ()
        return (*self.overrides, *layers, *self.choice.settings)

    def to_json(self) -> dict[str, Any]:
        """Return the documented object of `tune --json`."""
        candidates = [each.to_json() for each in self.candidates]
        return {
            "recipe": self.recipe,
            "engine": self.engine,
            "prompts": self.prompts,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "context": self.context,
            "choice": candidates[0],
            "set": list(self.settings),
            "candidates": candidates,
            "draft_lines": [
                {"precision": precision, "threads": threads} | asdict(line)
                for precision, threads, line in self.draft_lines
            ],
            "check": asdict(self.check) if self.check else None,
            "layers": self.layers.to_json() if self.layers else None,
        }


@dataclass(frozen=True)
class Job:
    """Checked tuning that has not run yet."""

    source: TunedRecipe
    options: Options
    shapes: tuple[DraftShape, ...]
    precisions: tuple[str | None, ...]
    prompts: tuple[str | list[int], ...]

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = (), options: Options | None = None) -> "Job":
        """Read and check a tuning, quickly and without torch. Raise RecipeError, UsageError or PromptError."""
        options, source = options or Options(), TunedRecipe.read(path, overrides)
        if source.plan.source is not None:
            raise source.recipe.origin.refusal(
                "target", f"'{source.plan.target.reference}', which has an encoder",
                "a language model: tuning gives prompts, and no sources", "measure drafters with speccompile compare",
            )  # fmt: skip
        if options.temperature and source.plan.decoding == "greedy":
            raise UsageError(
                f"--temperature: received {options.temperature:g}, expected 0: the recipe's decoding is greedy",
                hint="add --set decoding=sampling, or leave --temperature out",
            )
        if options.search_seconds is not None and source.plan.drafter.layers is None:
            raise UsageError(
                f"--search-seconds: received {options.search_seconds:g}, expected nothing: drafter.kind "
                f"{source.plan.drafter.kind} has no layers to search for",
                hint=f"leave --search-seconds out, or tune a recipe whose drafter.kind is {one_of(SEARCHED)}",
            )
        wanted, words = draft_shapes(source, options.drafts, options.trees), precisions(source, options.precisions)
        if options.predict:
            wanted = promising(source, wanted, own_profile(min(options.threads, default=None)))
        return cls(source, options, tuple(wanted), tuple(words), tuple(_prompts(source, options.prompts)))

    def run(self, pool: Executor = LOCAL) -> Tuning:
        """Build bundles in temporary folders, without a proof, and measure them. pool: executor; its machines must have
        the recipe and its models at the same paths. Raise the errors of a build."""
        options, plan = self.options, self.source.plan
        new_tokens = options.max_new_tokens or plan.prove.max_new_tokens
        generating: dict[str, Any] = {"max_new_tokens": new_tokens, "temperature": options.temperature}
        generating |= {"seed": 0} if options.temperature else {}
        threads = options.threads or usual_threads()
        trials = TrialRunner(
            self.source, self.prompts, self.precisions, threads, options.repeats, generating, pool=pool
        )
        layers = self._search_layers(trials)
        search = Search(trials, self.shapes)
        search.run()
        best = choose(search.candidates)
        checked = None
        if options.check:
            choice = best[0]
            plain = next(each for each in best if not each.drafts and each.threads == choice.threads)
            arguments = (trials.source, choice, plain, self.prompts, generating)
            (checked,) = run_all(pool, [Task(f"checking {choice.drafter}", check, arguments, exclusive=True)])
        assert trials.context is not None, "something was measured"
        return Tuning(
            plan.name, self.source.engine.name, len(self.prompts), new_tokens, options.temperature, trials.context,
            tuple(best), tuple(search.lines), self.source.overrides, checked, layers,
        )  # fmt: skip

    def _search_layers(self, trials: TrialRunner) -> LayerSearch | None:
        """Search for layers if the drafter has them and time allows. Later trials use the layers found."""
        seconds = SECONDS if self.options.search_seconds is None else self.options.search_seconds
        if self.source.plan.drafter.layers is None or not seconds:
            return None
        found = search_layers(trials, self.shapes, seconds)
        trials.source = TunedRecipe.read(self.source.path, [*self.source.overrides, found.setting])
        return found


def usual_threads() -> list[int]:
    """Return 1, 2, and the number of cores that this process may use."""
    return sorted({1, min(2, available_cores()), available_cores()})


def _prompts(source: TunedRecipe, file: Path | None) -> list[str | list[int]]:
    """Return the prompts of the file, or the recipe's. Raise RecipeError without any, PromptError for invalid ones."""
    if file is None:
        if source.plan.prove.prompts is None:
            raise source.recipe.origin.refusal(
                "prove.prompts", "nothing", "a file with the prompts to tune for", "add it, or give --prompts FILE"
            )
        return read_prompts(source.plan.prove.prompts)
    prompts = read_prompts(file)
    source.planned(f"prove.prompts={json.dumps(str(file.resolve()))}")  # planning checks them against the target
    return prompts
