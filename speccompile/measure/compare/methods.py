"""Drafting methods of a comparison: the default table, or a file that the user writes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from speccompile.drafters import DRAFTING_METHODS, KINDS_WITH_WEIGHTS
from speccompile.drafters.method import CompareVariant, FirstLayers, GivenIndex, SourceText
from speccompile.errors import RecipeError, UsageError
from speccompile.machine.plain_files import read_plain
from speccompile.measure.tune.space import TunedRecipe
from speccompile.progress import LOGGER
from speccompile.recipe import DrafterPlan, Plan
from speccompile.recipe.load import parse_yaml
from speccompile.recipe.prefix_schema import NAME, NAME_EXPECTED
from speccompile.recipe.schema import Drafter

AUTOREGRESSIVE = "autoregressive"
EXAMPLE = "lookup-8: {kind: prompt_lookup, tokens: 8}"


@dataclass(frozen=True)
class Method:
    """Name of a drafting method, and the KEY=VALUE settings, as --set takes them, that select it in the recipe."""

    name: str
    settings: tuple[str, ...]


LOOKUP = next(kind for kind, method in DRAFTING_METHODS.items() if method.looks_up)
OWN = (
    CompareVariant("{own}"),
    CompareVariant("{own}-tokens-2", {"tree": None, "tokens": 2}),
    CompareVariant("{own}-tokens-4", {"tree": None, "tokens": 4}),
    CompareVariant("{own}-tokens-8", {"tree": None, "tokens": 8}),
    CompareVariant("{own}-tree-2.2.1", {"tokens": None, "tree": [2, 2, 1]}),
    CompareVariant("{own}-tree-12", {"tokens": None, "tree": {"depth": 5, "top_k": 4, "nodes": 12}}),
    CompareVariant("{own}-best-12", {"tokens": None, "tree": {"kind": "blocks", "nodes": 12}}),
    CompareVariant("{own}-then-lookup", {"then": LOOKUP}),
    CompareVariant("{own}-or-lookup", {"gate": {"kind": LOOKUP, "match": 5}}),
    CompareVariant("{own}-by-lookup", {"drafter": {"kind": LOOKUP, "tokens": 4}}),
)
"""Variants of the recipe's own drafter, {own}, with changed keys. A variant that the recipe cannot have is skipped.
A variant that a kind itself declares stays, and its row shows why it is impossible."""


def default_methods(source: TunedRecipe, index: Path | None = None) -> list[Method]:
    """Return the recipe's own drafter, variants of all kinds, and then further ones of its own, without equal drafters:
    a comparison whose time is short has one of each kind first.

    index: an index that `speccompile index` wrote."""
    own: list[Method] = []
    found: list[Method] = []
    plans: list[DrafterPlan] = []
    others = [(kind, each) for kind, method in DRAFTING_METHODS.items() for each in method.compare_variants]
    for kind, tried in [*((None, each) for each in OWN), *others]:
        method = _own(source, tried) if kind is None else _other(source, kind, tried, index)
        if method is None or method.name in [each.name for each in own + found]:
            continue
        try:
            drafter = source.planned(*method.settings).drafter
        except RecipeError as error:
            if kind is None:
                LOGGER.info("skipping %s: %s", method.name, error)
                continue
        else:
            if drafter in plans:
                continue
            plans.append(drafter)
        (own if kind is None else found).append(method)
    return [*own[:1], *found, *own[1:]]


def replaced(source: TunedRecipe, section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings that replace a recipe's section `drafter`."""
    kind = section.get("kind")
    weighted = kind in KINDS_WITH_WEIGHTS or (kind is None and section.get("model") is not None)
    return (f"drafter={json.dumps(section)}", *(() if weighted else source.unweighted_settings()))


def _own(source: TunedRecipe, tried: CompareVariant) -> Method | None:
    """Return a variant of the recipe's own drafter, or None if the recipe has no drafter."""
    if not source.plan.drafter.tokens:
        return None
    written = source.recipe.drafter or Drafter()
    changed = {key: value for key, value in tried.keys.items() if value is not None or _is_set(written, key)}
    settings = tuple(f"drafter.{key}={json.dumps(value)}" for key, value in changed.items())
    return Method(tried.name.format(own=source.plan.drafter.kind), settings)


def _is_set(written: Drafter, key: str) -> bool:
    return getattr(written, key, None) is not None


def _other(source: TunedRecipe, kind: str, tried: CompareVariant, index: Path | None) -> Method | None:
    """Return a variant of another kind, or None if a key cannot be filled in."""
    section: dict[str, Any] = {"kind": kind}
    for key, value in tried.keys.items():
        filled = _filled(value, source, index)
        if filled is None:
            return None
        section[key] = filled
    return Method(tried.name, replaced(source, section))


def _filled(value: Any, source: TunedRecipe, index: Path | None) -> Any:
    match value:
        case FirstLayers(share):
            layers = source.plan.target.facts.layers
            return list(range(ceil(share * layers))) if layers else None
        case GivenIndex():
            return None if index is None else str(index.resolve())
        case SourceText():
            facts = source.plan.target.facts.source
            return None if facts is None or facts.audio is not None else "source"
    return value


def read_methods(path: Path, source: TunedRecipe) -> list[Method]:
    """Read methods from a YAML file: a name, and a section `drafter` or a list of settings.

    Raise UsageError for a missing or malformed file. Planning checks later whether the recipe can have them."""
    try:
        data = parse_yaml(read_plain(path).decode("utf-8-sig"), str(path))
    except FileNotFoundError:
        raise UsageError(
            f"--methods: received '{path}', expected a file: nothing lies there",
            hint=f"write lines such as `{EXAMPLE}`",
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--methods {path}: received bytes that are not UTF-8 (at byte {error.start}), expected a text file",
            hint="save the file as UTF-8",
        ) from None
    if not isinstance(data, dict) or not data:
        raise UsageError(
            f"--methods {path}: received {_shown(data)}, expected a mapping of names to sections `drafter`",
            hint=f"write lines such as `{EXAMPLE}`",
        )
    return [_method(path, name, value, source) for name, value in data.items()]


def _method(path: Path, name: Any, value: Any, source: TunedRecipe) -> Method:
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or name == AUTOREGRESSIVE:
        raise UsageError(
            f"--methods {path}: received the name {name!r}, expected {NAME_EXPECTED}, and not {AUTOREGRESSIVE}",
            hint="autoregression is always there; call others by other names",
        )
    match value:
        case {"kind": str(kind)} if kind in DRAFTING_METHODS and not DRAFTING_METHODS[kind].drafts:
            raise UsageError(
                f"--methods {path}, {name}: received kind {kind}, expected a drafting method",
                hint=f"{AUTOREGRESSIVE} is always there: remove the line",
            )
        case dict() if value and all(isinstance(key, str) for key in value):
            return Method(name, replaced(source, value))
        case [*settings] if settings and all(isinstance(each, str) for each in settings):
            return Method(name, tuple(settings))
    raise UsageError(
        f"--methods {path}, {name}: received {_shown(value)}, expected a section `drafter` or a list of KEY=VALUE",
        hint=f"for example `{EXAMPLE}`, or `{name}: [drafter.tokens=8]`",
    )


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:80]}..."


def check_comparable(source: TunedRecipe, plan: Plan) -> None:
    """Raise RecipeError if a method changes more than the drafter: its outputs would not be comparable."""
    ours, theirs = source.plan, plan
    for key in ("target", "decoding", "max_length", "batch_size"):
        if getattr(ours, key) != getattr(theirs, key):
            raise RecipeError(
                f"received a method that changes the recipe's {key}, expected one that changes how it drafts",
                hint="change it for all methods with --set",
            )
    if [each.precision.target for each in ours.engines if each.name == source.engine.name] != [
        each.precision.target for each in theirs.engines
    ]:
        raise RecipeError(
            "received a method that changes the engine or the target's precision, expected one that changes drafting",
            hint="change it for all methods with --set",
        )
