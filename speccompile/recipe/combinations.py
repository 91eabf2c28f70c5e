"""Valid combinations of drafters, trees, decodings and verification methods, as rows of values that may be mixed.

The rows come from the drafting methods and hold for every engine. `capabilities` has the limits of engines.
"""

from collections.abc import Mapping

from speccompile.drafters import DRAFTING_METHODS
from speccompile.errors import RecipeError
from speccompile.plan.recipe_source import RecipeSource, one_of
from speccompile.recipe.acceptance_methods import ACCEPTANCE_METHODS
from speccompile.recipe.capabilities import SupportRow

KEYS = {
    "drafter": "drafter.kind",
    "decoding": "decoding",
    "method": "verify.method",
    "tree": "drafter.tree",
    "sample": "drafter.sample",
}
"""Dimension of the table -> key of the recipe, in the order in which they are checked."""

TREES = {"chain": "a chain", "static": "a static tree", "dynamic": "a dynamic tree"}


def _rows() -> tuple[SupportRow, ...]:
    """Return the rows of all drafting methods; equal rows of several methods become one."""
    kinds: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for kind, method in DRAFTING_METHODS.items():
        for row in method.rows:
            kinds.setdefault(tuple(row[name] for name in _ROW), []).append(kind)
    rows = [{"drafter": tuple(its)} | dict(zip(_ROW, row, strict=True)) for row, its in kinds.items()]
    order = list(ACCEPTANCE_METHODS)
    return tuple(sorted(rows, key=lambda row: order.index(row["method"][0])))


_ROW = ("decoding", "method", "tree", "sample")

COMBINATIONS: tuple[SupportRow, ...] = _rows()


def matching_rows(words: Mapping[str, str]) -> tuple[SupportRow, ...]:
    """Return the rows that allow all of these values. words: dimension -> value."""
    return tuple(row for row in COMBINATIONS if all(word in row[dimension] for dimension, word in words.items()))


def check_combination(words: Mapping[str, str], origin: RecipeSource) -> None:
    """Raise RecipeError at the key of the first value that cannot be combined with those before it; the hint names
    possible changes. words: dimension -> value, in the order of KEYS."""
    before: dict[str, str] = {}
    for dimension, word in words.items():
        if not matching_rows(before | {dimension: word}):
            raise _refuse(before, dimension, word, origin)
        before[dimension] = word


def _refuse(before: dict[str, str], dimension: str, word: str, origin: RecipeSource) -> RecipeError:
    possible = _words(before, dimension)
    changes: dict[str, list[str]] = {}  # changes of one other value that suffice
    for other in before:
        words = _words({name: each for name, each in before.items() if name != other} | {dimension: word}, other)
        changes |= {other: words} if words else {}
    blamed = ", ".join(f"{KEYS[other]} {before[other]}" for other in changes or before)
    hint = ", or ".join(f"{KEYS[name]} to {one_of(words)}" for name, words in (changes | {dimension: possible}).items())
    received = f"'{word}'" if dimension == "method" else _shown(dimension, word)
    return origin.refusal(KEYS[dimension], f"{received}, which {blamed} cannot do", one_of(possible), f"set {hint}")


def _words(others: dict[str, str], dimension: str) -> list[str]:
    """Return the values of `dimension` that can be combined with the given values of other dimensions."""
    words = dict.fromkeys(word for row in matching_rows(others) for word in row[dimension])
    return [_shown(dimension, word) for word in words]


def _shown(dimension: str, word: str) -> str:
    return TREES[word] if dimension == "tree" else word
