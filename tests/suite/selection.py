"""Choose the cases of a table that everybody runs; the others are the sweep's."""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def sweep_but(first: Container[T], cases: Iterable[T], reason: str) -> list[Any]:
    """Return the cases as parameters, those that are not in `first` marked for the sweep."""
    mark = pytest.mark.sweep(reason)
    return [case if case in first else pytest.param(case, marks=mark) for case in cases]


def covering(cases: Sequence[T], words: Callable[[T], Iterable[object]]) -> list[T]:
    """Return few of the cases that have all words of all cases between them.

    Greedy: the case that adds most words comes next, the first of equals.
    """
    found = {id(case): set(words(case)) for case in cases}
    missing, chosen = set().union(*found.values()), list[T]()
    while missing:
        best = max(cases, key=lambda case: len(found[id(case)] & missing))
        chosen.append(best)
        missing -= found[id(best)]
    return chosen
