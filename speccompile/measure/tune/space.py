"""What is tried for a recipe: numbers of drafts, trees, precisions of the drafter; and how a recipe says each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from speccompile.drafters import DRAFTING_METHODS, KINDS_WITH_WEIGHTS
from speccompile.errors import RecipeError, UsageError
from speccompile.plan.recipe_source import one_of
from speccompile.progress import LOGGER
from speccompile.recipe import EnginePlan, Plan, Recipe, load_recipe, make_plan
from speccompile.recipe.capabilities import DRAFTER_KEYS, SUPPORT_TABLE
from speccompile.recipe.schema import Drafter, Engine, Precision

DRAFTS = (1, 2, 3, 4, 5, 6, 8)
"""Drafts of a chain. Of `models`, where every number needs a bundle of its own, the recipe's alone."""
TREES = ("[2,1]", "[2,2,1]", "eagle-25", '{"depth":5,"top_k":4,"nodes":12}')
"""As a recipe writes them. A CPU pays for every node, so most are small."""
BACKEND, PROVIDER = "onnxruntime", "cpu"

T = TypeVar("T")


@dataclass(frozen=True)
class DraftShape:
    """How drafts follow each other. drafts: of a chain; tree: as a recipe writes it; keys: of the recipe, with the
    numbers that size a kind's own tree. Exactly one is given."""

    drafts: int | None = None
    tree: str | None = None
    keys: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        if self.keys:
            return ", ".join(f"{name} {number}" for name, number in self.keys)
        return f"chain of {self.drafts}" if self.tree is None else f"tree {self.tree}"


@dataclass(frozen=True)
class TunedRecipe:
    """A recipe as its user gave it, and the engine that is tuned. `overrides`: as of `load_recipe`."""

    path: Path
    overrides: tuple[str, ...]
    recipe: Recipe
    plan: Plan
    engine: EnginePlan

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str]) -> "TunedRecipe":
        """Raises RecipeError as `of`, and for a recipe that has no drafter."""
        source = cls.of(path, overrides)
        if not source.plan.drafter.tokens:
            raise source.recipe.origin.refusal(
                "drafter.kind", "'none'", "a drafter to tune",
                "add a drafter, for example `drafter: {kind: prompt_lookup}`",
            )  # fmt: skip
        return source

    @classmethod
    def of(cls, path: Path, overrides: Sequence[str], engine: str | None = None) -> "TunedRecipe":
        """engine: its name; by default the first for this machine's processor. Raises RecipeError for a recipe that is
        wrong, or has no such engine."""
        recipe = load_recipe(path, overrides)
        plan = make_plan(recipe)
        names = one_of([each.name for each in plan.engines])
        for each in plan.engines:
            if each.name == engine or (engine is None and (each.backend, each.provider) == (BACKEND, PROVIDER)):
                return cls(path, tuple(overrides), recipe, plan, each)
        if engine is not None:
            raise recipe.origin.refusal("engines", names, f"one that is called '{engine}'", "give one of these names")
        raise recipe.origin.refusal(
            "engines", names, f"one of {BACKEND} on {PROVIDER} to measure",
            f"add `- backend: {BACKEND}` to the engines, or --set 'engines=[{{backend: {BACKEND}}}]'",
        )  # fmt: skip

    def planned(self, *settings: str) -> Plan:
        """The plan with more settings, for the engine that is tuned alone. Raises RecipeError where they do not go
        together."""
        plan = make_plan(load_recipe(self.path, [*self.overrides, *settings]))
        return replace(plan, engines=tuple(each for each in plan.engines if each.name == self.engine.name))

    @property
    def is_chain(self) -> bool:
        """Whether a number of drafts makes one branch: several models make one each."""
        return len(self.plan.drafter.models) <= 1

    def shape_settings(self, shape: DraftShape) -> tuple[str, ...]:
        """What makes the recipe's drafter draft this."""
        written = self.recipe.drafter or Drafter()
        others = ("tree", "tokens") if shape.keys else ("tree" if shape.tree is None else "tokens", "nodes")
        settings = [f"drafter.{key}=null" for key in others if getattr(written, key) is not None]
        if shape.keys:
            return (*settings, *(f"drafter.{name}={number}" for name, number in shape.keys))
        return (*settings, f"drafter.tokens={shape.drafts}" if shape.tree is None else f"drafter.tree={shape.tree}")

    def precision_settings(self, word: str | None) -> tuple[str, ...]:
        """What gives the drafter this precision, in this engine alone where there are others."""
        if word is None:
            return ()
        entry, written = self.engine.entry, self.recipe.engines or [Engine()]
        own, common = written[entry].precision or Precision(), self.recipe.precision or Precision()
        place = f"engines.{entry}." if len(written) > 1 or own.drafter is not None else ""
        settings = [f"{place}precision.drafter={word}"]
        if "int4" not in (word, self.engine.precision.target):  # block sizes mean nothing then
            settings += [f"engines.{entry}.precision.block_size=null"] if own.block_size is not None else []
            settings += ["precision.block_size=null"] if common.block_size is not None and len(written) == 1 else []
        return tuple(settings)

    def none_settings(self) -> tuple[str, ...]:
        """What leaves the drafter out, and all that needs one."""
        recipe = self.recipe
        settings = ["drafter={kind: none}"]
        settings += ["graphs=separate"] if recipe.graphs == "fused" else []
        settings += ["verify={method: exact}"] if self.plan.verify.method != "exact" else []
        return (*settings, *self.unweighted_settings())

    def unweighted_settings(self) -> tuple[str, ...]:
        """What leaves out the precision of a drafter's weights, for one that has none."""
        recipe = self.recipe
        sections = {"precision": recipe.precision}
        sections |= {f"engines.{index}.precision": each.precision for index, each in enumerate(recipe.engines or ())}
        return tuple(f"{place}.drafter=null" for place, section in sections.items() if section and section.drafter)


def draft_shapes(source: TunedRecipe, drafts: Sequence[int], trees: Sequence[str]) -> list[DraftShape]:
    """Those asked for; where none are, the usual ones and the recipe's own. What the recipe cannot have is passed over
    with a reason. Raises UsageError when nothing is left."""
    if drafts or trees:
        wanted = [
            *(DraftShape(drafts=each) for each in sorted(set(drafts))),
            *(DraftShape(tree=each) for each in trees),
        ]
    else:
        wanted = _usual(source)
    names = {shape: (shape.label, source.shape_settings(shape)) for shape in wanted}
    return _possible(source, names)


def _usual(source: TunedRecipe) -> list[DraftShape]:
    sizes = [DraftShape(keys=tuple(size.items())) for size in DRAFTING_METHODS[source.plan.drafter.kind].tune_sizes]
    if "tree" not in DRAFTER_KEYS[source.plan.drafter.kind] and sizes:
        return [*sizes, _own_shape(source)]
    chains = [DraftShape(drafts=each) for each in (DRAFTS if source.is_chain else ())]
    return [*chains, *sizes, *(DraftShape(tree=each) for each in TREES), _own_shape(source)]


def precisions(source: TunedRecipe, wanted: Sequence[str]) -> list[str | None]:
    """Precisions of the drafter's weights: those asked for, or all that the engine can have; None alone for a drafter
    without weights of its own. Raises UsageError for others."""
    kind = source.plan.drafter.kind
    rows = [row for row in SUPPORT_TABLE if BACKEND in row["backend"] and PROVIDER in row["provider"]]
    known = [word for row in rows for word in row["drafter_precision"]]
    if kind not in KINDS_WITH_WEIGHTS:
        if wanted:
            raise UsageError(
                f"--precision: received {', '.join(wanted)}, expected nothing: drafter.kind {kind} has no weights of "
                "its own",
                hint="leave --precision out",
            )
        return [None]
    unknown = next((word for word in wanted if word not in known), None)
    if unknown is not None:
        raise UsageError(
            f"--precision: received '{unknown}', expected {one_of(known)}",
            hint=f"these are what {BACKEND} on {PROVIDER} can draft in",
        )
    return list(_possible(source, {word: (word, source.precision_settings(word)) for word in wanted or known}))


def _possible(source: TunedRecipe, wanted: dict[T, tuple[str, tuple[str, ...]]]) -> list[T]:
    """What a recipe can have of some things, each with its name and its settings."""
    possible = []
    for each, (name, settings) in wanted.items():
        try:
            source.planned(*settings)
        except RecipeError as error:
            LOGGER.info("%s is passed over: %s", name, error)
        else:
            possible.append(each)
    if not possible:
        raise UsageError(
            f"nothing is left to try of {one_of([name for name, _ in wanted.values()])}",
            hint="the lines above say why; ask for others",
        )
    return possible


def _own_shape(source: TunedRecipe) -> DraftShape:
    if source.plan.drafter.lookahead is not None:
        return DraftShape(keys=tuple(zip(("window", "level", "guesses"), source.plan.drafter.lookahead, strict=True)))
    tree, planned = (source.recipe.drafter or Drafter()).tree, source.plan.drafter.tree
    if tree is None and planned.kind == "static":  # the drafter's own
        return DraftShape(keys=(("nodes", source.plan.drafter.tokens),))
    if tree is None or tree == "chain":
        return DraftShape(drafts=source.plan.drafter.own.tree.depth)
    if isinstance(tree, str):
        return DraftShape(tree=tree)
    plain = tree if isinstance(tree, list) else tree.model_dump(exclude_none=True)
    return DraftShape(tree=json.dumps(plain, separators=(",", ":")))
