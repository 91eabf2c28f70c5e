"""Decide every size of a new drafter from the section `train.shape` and the table of its method."""

from collections.abc import Mapping
from typing import Any

from speccompile.drafters.sizes import Config, Size
from speccompile.plan.recipe_source import RecipeSource, format_value, nearest, one_of

SECTION = "train.shape"

Sizes = dict[str, int | str]


def decide_shape(sizes: Mapping[str, Size], config: Config, given: Mapping[str, Any], origin: RecipeSource) -> Sizes:
    """Return every size: as given, or its default. config: of the target's text decoder.

    Raise RecipeError at `train.shape.<name>` for an unknown name and for a value out of range.
    """
    for name in given:
        if name not in sizes:
            near = nearest(name, sizes)
            hint = f"write {near}" if near else f"the sizes of this kind: {', '.join(sizes) or 'none'}"
            expected = f"one of {', '.join(sizes)}" if sizes else "no sizes: the target decides them for this kind"
            raise origin.refusal(f"{SECTION}.{name}", "an unknown size", expected, hint)
    found: Sizes = {}
    for name, size in sizes.items():
        default = size.default if isinstance(size.default, int | str) else size.default(config, found)
        value = given.get(name)
        found[name] = _checked(name, size, default if value is None else value, config, found, origin)
    return found


def _checked(name: str, size: Size, value: Any, config: Config, found: Sizes, origin: RecipeSource) -> int | str:
    where = f"{SECTION}.{name}"
    if size.words and not (size.numbers and type(value) is int):
        if value not in size.words:
            raise origin.refusal(where, format_value(value), one_of(size.words), f"set {where} to {size.words[0]}")
        return str(value)
    if type(value) is not int or value < size.min or value % size.step:
        expected = f"a whole number from {size.min} on" + (f", a multiple of {size.step}" if size.step > 1 else "")
        raise origin.refusal(
            where, format_value(value), expected, f"give {where} such a number, or leave it to the target's"
        )
    most = size.max(config, found) if callable(size.max) else size.max
    if most is not None and value > most:
        raise origin.refusal(where, str(value), f"at most {most}", size.reason)
    if size.divides is not None and int(found[size.divides]) % value:
        other = f"{SECTION}.{size.divides}"
        expected = f"a divisor of {other}, which is {found[size.divides]}"
        raise origin.refusal(where, str(value), expected, f"change {where} or {other}")
    return value
