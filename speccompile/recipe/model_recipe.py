"""A recipe for a model that has none: what `run`, `chat`, `init` and `build MODEL` decide for this machine.

The recipe is text with comments, so that people can read, keep and change the decisions.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from speccompile.drafters import DEFAULT_KIND, DRAFTING_METHODS, kind_called, kind_near, mtp
from speccompile.drafters.method import HEAD, OWN
from speccompile.errors import CheckpointError, RecipeError, UnsupportedModelError, UsageError
from speccompile.machine.system import memory_limits
from speccompile.plan.plan import Plan
from speccompile.plan.precisions import STORED
from speccompile.recipe.decide import make_plan
from speccompile.recipe.load import FILE_NAME, dump_yaml, parse_recipe, parse_yaml
from speccompile.recipe.model_recipe_text import recipe_text
from speccompile.recipe.model_request import ModelRequest
from speccompile.recipe.resource_estimate import running_bytes

LARGEST_SHARE = 0.8
"""Share of the memory that weights and caches may take: the rest is for everything else on the machine."""
SMALLER = ("int8", "int4")
"""Precisions to take instead of one that does not fit, the largest first."""

CARRIED = mtp.METHOD.kind
"""Kind whose weights the target's own checkpoint may hold."""

Section = dict[str, str] | None
"""A recipe's section `drafter`, None to leave it to the defaults."""


@dataclass(frozen=True)
class ModelRecipe:
    """A recipe's text, its plan, and notes on decisions in addition to the plan's."""

    text: str
    plan: Plan
    notes: list[str] = field(default_factory=list)


def make_model_recipe(
    request: ModelRequest, relative_to: Path | None = None, overrides: Sequence[str] = ()
) -> ModelRecipe:
    """Return the recipe for a model. relative_to: folder of the recipe's file, to which nearby paths become relative.
    overrides: as after --set; the text then has values alone. Raise RecipeError, CheckpointError and
    UnsupportedModelError as `make_plan` does."""
    notes: list[str] = []
    decided = _that_fits(request, *_with_drafter(request, notes), notes)
    text = recipe_text(request, decided, _reference(relative_to))
    file = (relative_to or Path()) / FILE_NAME
    data = parse_yaml(text, str(file))
    plan = make_plan(parse_recipe(data, file, overrides))
    if overrides:
        head = "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
        text = head + dump_yaml(data)
    return ModelRecipe(text, plan, list(dict.fromkeys([*notes, *decided.notes, *plan.notes])))


def _with_drafter(request: ModelRequest, notes: list[str]) -> tuple[Plan, Section]:
    """Return the plan, and the section `drafter` of its recipe: the drafter that is asked for; else the one that the
    checkpoint carries, one that lies beside it and fits, or one without weights."""
    if request.drafter is not None:
        section = _asked_drafter(request.drafter)
        return _plan(request, section), section
    plan = _plan(request, None)
    if plan.drafter.head is not None:
        return plan, None
    for folder in request.drafters_beside():
        section = {"model": str(folder)}
        try:
            found = _plan(request, section)
        except (RecipeError, CheckpointError, UnsupportedModelError) as error:
            notes.append(f"{folder} is no drafter for this model: {error}")
            continue
        notes.append(f"the drafter lies in {folder} (drafter.kind {found.drafter.kind})")
        return found, section
    return plan, None


def _asked_drafter(asked: str) -> dict[str, str]:
    """Return the section `drafter` for a folder, a Hub id or a kind."""
    kind, path = kind_called(asked), Path(asked).expanduser()
    if kind in DRAFTING_METHODS and not path.is_dir():
        if DRAFTING_METHODS[kind].weights in (OWN, HEAD) and kind != CARRIED:
            raise UsageError(
                f"--drafter: received '{asked}', a drafting method with weights of its own, expected their folder or a "
                "Hub id",
                hint="give the folder, as in --drafter DIR: what lies in it says the method; or --drafter "
                f"{DEFAULT_KIND}, which needs no weights",
            )
        return {"kind": kind}
    if not path.exists() and "/" not in asked:
        guess = kind_near(asked)
        raise UsageError(
            f"--drafter: received '{asked}', expected a drafter's folder, a Hub id such as organisation/name, or one "
            f"of {', '.join(DRAFTING_METHODS)}",
            hint=f"did you mean {guess}?" if guess else "docs/reference/support.md lists the drafting methods",
        )
    return {"model": _absolute(asked)}


def _that_fits(request: ModelRequest, plan: Plan, section: Section, notes: list[str]) -> Plan:
    """Return the plan, or one with the same section `drafter` in the largest smaller precision, if its weights and
    caches need too much memory."""
    if request.precision is not None:
        return plan
    if plan.target.facts.has_codes:
        plan = _plan(request, section, STORED)
    memory = min(limit.size for limit in memory_limits())
    needed = running_bytes(plan)
    if needed <= LARGEST_SHARE * memory:
        return plan
    for word in SMALLER:
        smaller = _plan(request, section, word)
        if running_bytes(smaller) <= LARGEST_SHARE * memory or word == SMALLER[-1]:
            break
    notes.append(
        f"precision.target is {word}: in {plan.engines[0].precision.target} it would take {needed / 1e9:.1f} GB of "
        f"{memory / 1e9:.1f} GB; the build measures what that costs"
    )
    return smaller


def _plan(request: ModelRequest, drafter: Section, precision: str | None = None) -> Plan:
    target: dict[str, object] = {"model": _absolute(request.model)}
    target |= {"tokenizer": _absolute(request.tokenizer)} if request.tokenizer else {}
    target |= {"images": True} if request.images else {}
    data: dict[str, object] = {"name": request.name, "target": target}
    data |= {"drafter": drafter} if drafter else {}
    word = precision or request.precision
    data |= {"precision": {"target": word}} if word else {}
    data |= {"decoding": "sampling"} if request.sampling else {}
    return make_plan(parse_recipe(data, Path(f"the recipe for {request.name}")))


def _absolute(reference: str) -> str:
    path = Path(reference).expanduser()
    return str(path.resolve()) if path.exists() else reference


def _reference(relative_to: Path | None) -> Callable[[str], str]:
    """Return the function that writes a model's reference into the recipe: a path relative to the recipe's folder where
    both lie below one folder that is not the root."""

    def written(reference: str) -> str:
        path = Path(reference)
        if relative_to is None or not path.is_absolute():
            return reference
        relative = os.path.relpath(path, relative_to.resolve())
        return reference if relative.startswith("../" * 4) else relative

    return written
