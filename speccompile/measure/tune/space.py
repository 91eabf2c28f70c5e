"""Search space of a recipe: draft lengths, trees and precisions of the drafter, and the settings that select them."""

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
"""Lengths of chains. `models`, which needs a separate bundle per number, tries only the recipe's."""
TREES = (
    "[2,1]",
    "[2,2,1]",
    "eagle-25",
    '{"depth":5,"top_k":4,"nodes":12}',
    *(f'{{"kind":"blocks","nodes":{nodes}}}' for nodes in (8, 12, 16)),
)
"""Trees in a recipe's notation. A CPU pays for every node, so most are small."""
BACKEND, PROVIDER = "onnxruntime", "cpu"

T = TypeVar("T")


@dataclass(frozen=True)
class DraftShape:
    """Shape of the drafts; exactly one field is set. drafts: length of a chain; tree: in a recipe's notation; keys:
    recipe keys and numbers that size a kind's own tree."""

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
    """Recipe of the user, and the engine to tune. overrides: see `load_recipe`."""

    path: Path
    overrides: tuple[str, ...]
    recipe: Recipe
    plan: Plan
    engine: EnginePlan

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str]) -> "TunedRecipe":
        """Read a recipe as `of` does. Raise RecipeError also for a recipe without a drafter."""
        source = cls.of(path, overrides)
        if not source.plan.drafter.tokens:
            raise source.recipe.origin.refusal(
                "drafter.kind", "'none'", "a drafter to tune",
                "add a drafter, for example `drafter: {kind: prompt_lookup}`",
            )  # fmt: skip
        return source

    @classmethod
    def of(cls, path: Path, overrides: Sequence[str], engine: str | None = None) -> "TunedRecipe":
        """Read a recipe. engine: name of an engine; by default the first ONNX Runtime engine on the CPU. Raise
        RecipeError for an invalid recipe, or without such an engine."""
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
        """Return the plan with more settings, for the tuned engine only. Raise RecipeError if the settings conflict."""
        plan = make_plan(load_recipe(self.path, [*self.overrides, *settings], "setting"))  # not written by the user
        return replace(plan, engines=tuple(each for each in plan.engines if each.name == self.engine.name))

    @property
    def is_chain(self) -> bool:
        """True if the drafts form one chain: several draft models form a branch each."""
        return len(self.plan.drafter.models) <= 1

    def shape_settings(self, shape: DraftShape) -> tuple[str, ...]:
        """Return the settings that give the recipe's drafter this shape."""
        written = self.recipe.drafter or Drafter()
        others = ("tree", "tokens") if shape.keys else ("tree" if shape.tree is None else "tokens", "nodes")
        settings = [f"drafter.{key}=null" for key in others if getattr(written, key) is not None]
        if shape.keys:
            return (*settings, *(f"drafter.{name}={number}" for name, number in shape.keys))
        return (*settings, f"drafter.tokens={shape.drafts}" if shape.tree is None else f"drafter.tree={shape.tree}")

    def precision_settings(self, word: str | None) -> tuple[str, ...]:
        """Return the settings that give the drafter this precision, in the tuned engine only."""
        if word is None:
            return ()
        entry, written = self.engine.entry, self.recipe.engines or [Engine()]
        own, common = written[entry].precision or Precision(), self.recipe.precision or Precision()
        place = f"engines.{entry}." if len(written) > 1 or own.drafter is not None else ""
        settings = [f"{place}precision.drafter={word}"]
        if "int4" not in (word, self.engine.precision.target):  # no weights in blocks: a block size would be refused
            settings += [f"engines.{entry}.precision.block_size=null"] if own.block_size is not None else []
            settings += ["precision.block_size=null"] if common.block_size is not None and len(written) == 1 else []
        return tuple(settings)

    def none_settings(self) -> tuple[str, ...]:
        """Return the settings that remove the drafter and everything that needs one."""
        recipe = self.recipe
        settings = ["drafter={kind: none}"]
        settings += ["graphs=separate"] if recipe.graphs == "fused" else []
        settings += ["verify={method: exact}"] if self.plan.verify.method != "exact" else []
        return (*settings, *self.unweighted_settings())

    def unweighted_settings(self) -> tuple[str, ...]:
        """Return the settings that remove the drafter's precision, for a drafter without weights."""
        recipe = self.recipe
        sections = {"precision": recipe.precision}
        sections |= {f"engines.{index}.precision": each.precision for index, each in enumerate(recipe.engines or ())}
        return tuple(f"{place}.drafter=null" for place, section in sections.items() if section and section.drafter)


def draft_shapes(source: TunedRecipe, drafts: Sequence[int], trees: Sequence[str]) -> list[DraftShape]:
    """Return the requested shapes, or by default the usual ones and the recipe's own.

    Shapes that the recipe cannot have are skipped and logged. Raise UsageError if none is left."""
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
    """Return the drafter precisions to try: the requested ones, or all that the engine supports; [None] for a drafter
    without weights. Raise UsageError for any other precision."""
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
    """Return the keys of `wanted`, key -> (name, settings), whose settings the recipe accepts."""
    possible = []
    for each, (name, settings) in wanted.items():
        try:
            source.planned(*settings)
        except RecipeError as error:
            LOGGER.info("skipping %s: %s", name, error)
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
    if tree is None and planned.kind == "static":  # the tree that the drafter's checkpoint brings
        return DraftShape(keys=(("nodes", source.plan.drafter.tokens),))
    if tree is None or tree == "chain":
        return DraftShape(drafts=source.plan.drafter.own.tree.depth)
    if isinstance(tree, str):
        return DraftShape(tree=tree)
    plain = tree if isinstance(tree, list) else tree.model_dump(exclude_none=True)
    return DraftShape(tree=json.dumps(plain, separators=(",", ":")))
