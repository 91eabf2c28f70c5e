"""The whole of tuning: what is tried, built and measured, and what comes out."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.prompts import read_prompts
from speccompile.errors import UsageError
from speccompile.machine.executor import LOCAL, Executor, Task, run_all
from speccompile.machine.system import available_cores
from speccompile.measure.tune.check import Check, check
from speccompile.measure.tune.layer_search import SEARCHED, SECONDS, LayerSearch, search_layers
from speccompile.measure.tune.predict import Candidate, LinearCost, choose
from speccompile.measure.tune.search import Search
from speccompile.measure.tune.space import DraftShape, TunedRecipe, draft_shapes, precisions
from speccompile.measure.tune.trial import TrialRunner
from speccompile.plan.recipe_source import one_of

COST_REPEATS = 40


@dataclass(frozen=True)
class Options:
    """What is tried and how; None and () leave it to `tune`. Threads: of the engine. prompts: a file."""

    prompts: Path | None = None
    max_new_tokens: int | None = None
    repeats: int = COST_REPEATS
    threads: Sequence[int] = ()
    drafts: Sequence[int] = ()
    trees: Sequence[str] = ()
    precisions: Sequence[str] = ()
    temperature: float = 0.0
    check: bool = False
    search_seconds: float | None = None
    """For layers, where the drafter is some of the target's; 0 keeps the recipe's."""


@dataclass(frozen=True)
class Tuning:
    """What was measured and chosen. candidates: the best first. context: tokens over which costs were measured. layers:
    what the search for them found, where there was one.

    draft_lines: of chains, by precision and threads: seconds of a draft as base + slope * drafts.
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
        """The best way without a drafter."""
        return next(each for each in self.candidates if not each.drafts)

    @property
    def settings(self) -> tuple[str, ...]:
        """KEY=VALUE for the chosen recipe, those that it was tuned with first."""
        layers = (self.layers.setting,) if self.layers and self.choice.drafts else ()
        return (*self.overrides, *layers, *self.choice.settings)

    def to_json(self) -> dict[str, Any]:
        """The documented object of `tune --json`."""
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
    """A tuning whose questions are answered, and whose work is still to be done."""

    source: TunedRecipe
    options: Options
    shapes: tuple[DraftShape, ...]
    precisions: tuple[str | None, ...]
    prompts: tuple[str | list[int], ...]

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = (), options: Options | None = None) -> "Job":
        """Quick, and without torch. Raises RecipeError, UsageError and PromptError for what cannot be tuned."""
        options, source = options or Options(), TunedRecipe.read(path, overrides)
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
        return cls(source, options, tuple(wanted), tuple(words), tuple(_prompts(source, options.prompts)))

    def run(self, pool: Executor = LOCAL) -> Tuning:
        """Build bundles in temporary folders, without their proof, and measure them. pool: where; machines must have
        the recipe and its models at the same places. Raises what a build raises."""
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
        """Where layers are to be searched: from here on the trials are of what was found."""
        seconds = SECONDS if self.options.search_seconds is None else self.options.search_seconds
        if self.source.plan.drafter.layers is None or not seconds:
            return None
        found = search_layers(trials, self.shapes, seconds)
        trials.source = TunedRecipe.read(self.source.path, [*self.source.overrides, found.setting])
        return found


def usual_threads() -> list[int]:
    """One, two, and every core that this process may use."""
    return sorted({1, min(2, available_cores()), available_cores()})


def _prompts(source: TunedRecipe, file: Path | None) -> list[str | list[int]]:
    """Those of the file, or the recipe's own. Raises RecipeError where there are none, PromptError for wrong ones."""
    if file is None:
        if source.plan.prove.prompts is None:
            raise source.recipe.origin.refusal(
                "prove.prompts", "nothing", "a file with the prompts to tune for", "add it, or give --prompts FILE"
            )
        return read_prompts(source.plan.prove.prompts)
    prompts = read_prompts(file)
    source.planned(f"prove.prompts={json.dumps(str(file.resolve()))}")  # which compares them with the target
    return prompts
