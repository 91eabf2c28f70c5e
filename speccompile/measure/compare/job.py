"""Comparison that has been read and checked: its options, methods, questions and folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from speccompile import __version__
from speccompile.bundle.prompts import Question, read_questions
from speccompile.errors import UsageError
from speccompile.machine.system import processor
from speccompile.measure.compare.board import Board
from speccompile.measure.compare.estimate import Estimate
from speccompile.measure.compare.limit import TimeLimit
from speccompile.measure.compare.methods import AUTOREGRESSIVE, Method, check_comparable, default_methods, read_methods
from speccompile.measure.compare.store import Store
from speccompile.measure.tune.space import TunedRecipe
from speccompile.recipe import Plan

FORMAT = 2
"""Version of the files of passes."""


@dataclass(frozen=True)
class Options:
    """Options of a comparison. methods: a file of methods, None for the default ones. index: see
    `methods.default_methods`. output: build/<name>-methods by default. drop: stop measuring methods that cannot win.
    minutes: time limit of a run, 0 for none. sampling: options of `Bundle.generate_batch`, None if not given."""

    prompts: Path
    methods: Path | None = None
    index: Path | None = None
    output: Path | None = None
    engine: str | None = None
    threads: int | None = None
    max_new_tokens: int = 128
    repeats: int = 3
    adaptive: bool = False
    use_build_cache: bool = True
    drop: bool = True
    minutes: float = 4.0
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Checked comparison that has not run yet. methods: the methods, autoregression first."""

    source: TunedRecipe
    options: Options
    methods: tuple[Method, ...]
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
        methods = read_methods(options.methods, source) if options.methods else default_methods(source, options.index)
        output = options.output or Path("build") / f"{source.plan.name}-methods"
        plain = Method(AUTOREGRESSIVE, source.none_settings())
        return cls(source, options, (plain, *methods), tuple(questions), Store(output))

    def board(self, limit: TimeLimit | None = None) -> Board:
        """Return a new board for one run. limit: that of the options which has begun; by default it begins now."""
        tokens = self.options.max_new_tokens * sum(len(question.turns) for question in self.questions)
        estimate = Estimate(self.source.plan.target.facts.weight_bytes, tokens, self.options.repeats)
        limit = limit or TimeLimit.of_minutes(self.options.minutes)
        return Board([method.name for method in self.methods], len(self.questions), estimate, limit)

    def plan(self, method: Method) -> Plan:
        """Return the plan of a method. Raise RecipeError or CheckpointError if the recipe cannot have it."""
        plan = self.source.planned(*method.settings)
        check_comparable(self.source, plan)
        return plan

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

    def key(self) -> dict[str, Any]:
        """Return the key that must be unchanged to resume a comparison. Only the number of repeats may grow."""
        options, plan = self.options, self.source.plan
        recipe = plan.to_json()
        for key in ("drafter", "graphs", "verify", "notes"):
            del recipe[key]  # the methods decide these
        common = self.options_json() | {"threads": options.threads, "engine": self.source.engine.name}
        del common["repeats"]
        return {
            "format": FORMAT,
            "recipe": recipe,
            "prompts": sha256(options.prompts.read_bytes()).hexdigest(),
            "options": common,
            "versions": _versions(),
            "machine": {name: processor()[name] for name in ("architecture", "name")},
        }


def _versions() -> dict[str, str]:
    import onnxruntime

    return {"speccompile": __version__, "onnxruntime": onnxruntime.__version__}
