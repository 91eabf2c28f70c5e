"""Sizes of a chat template's values, and of what its filters and methods would make of them.

One call of a filter or method cannot be interrupted. So its size is estimated before: every function here raises
jinja2's TemplateRuntimeError for a value that no prompt needs.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

from jinja2 import TemplateRuntimeError
from jinja2.utils import Namespace

CHARACTERS = 1 << 24
"""Largest text, and largest value when it is written."""
ELEMENTS = 1 << 20
"""Largest number of values in a list, with those inside them."""
_DEPTH = 200
"""Deepest nesting of lists and mappings: comparing deeper ones would overflow the C library's stack."""
_BITS = 1 << 14
"""Largest integer, in bits: Python writes none that is longer."""
_EXPONENT = 64
_DIGITS = 308
"""Largest precision to round to: float64 has no more digits."""
_SLOW = 1 << 16
"""Largest text for filters and methods that take more than linear time."""
_STEPS = 1 << 30
"""Largest number of comparisons of characters in one call."""

_WIDTH = re.compile(r"\d+")
_PERCENT = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_MOST_WIDTH = 10**6


class Arguments(NamedTuple):
    """Arguments of a filter or method, without the value that it works on."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def get(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument by its place or name."""
        return self.positional[place] if place < len(self.positional) else self.named.get(name, default)

    def number(self, place: int, name: str, default: int = 0) -> int:
        """Return an integer by its place or name; 0 for an argument of another type, which the call refuses itself."""
        value = self.get(place, name, default)
        return value if isinstance(value, int) else 0

    def length(self, place: int, name: str) -> int:
        """Return the length of a text by its place or name; 0 for an argument of another type."""
        value = self.get(place, name)
        return len(value) if isinstance(value, str | bytes) else 0


def check_size(size: int) -> None:
    """Raise TemplateRuntimeError for a text of too many characters."""
    if size > CHARACTERS:
        raise TemplateRuntimeError(f"it makes a text of more than {CHARACTERS} characters")


def check_elements(count: int) -> None:
    """Raise TemplateRuntimeError for a list of too many elements."""
    if count > ELEMENTS:
        raise TemplateRuntimeError(f"it makes a list of more than {ELEMENTS} elements")


def written_size(value: object) -> int:
    """Return the characters of a value when it is written, without separators. Raise TemplateRuntimeError for a value
    that is too large or nested too deep: a list may hold another one twice, which holds a third one twice, ..."""
    size = count = 0
    level: Sequence[object] = (value,)
    for _ in range(_DEPTH):
        inner: list[object] = []
        for each in level:
            if isinstance(each, str | bytes):
                size += len(each)
            elif isinstance(each, int):
                size += each.bit_length() // 3
            elif parts := _parts(each):
                count += len(parts)
                check_elements(count)
                inner += parts
        check_size(size)
        if not inner:
            return size
        level = inner
    raise TemplateRuntimeError(f"it nests values more than {_DEPTH} deep")


def check_depth(values: Collection[object]) -> None:
    """Raise TemplateRuntimeError if one of the values that a template is given is nested too deep, used or not."""
    level = _containers(values)
    for _ in range(_DEPTH):
        level = _containers([part for each in level for part in _parts(each)])
    if level:
        raise TemplateRuntimeError(f"it has values that are nested deeper than {_DEPTH}")


def _containers(values: Collection[object]) -> list[object]:
    return [each for each in values if isinstance(each, Mapping | list | tuple)]


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Raise TemplateRuntimeError if a binary operator would make a value that is too large."""
    if operator == "+":
        if isinstance(left, str | bytes) and isinstance(right, str | bytes):
            check_size(len(left) + len(right))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            check_elements(len(left) + len(right))
    elif operator == "*":
        _check_product(left, right)
    elif operator == "**" and isinstance(right, int):
        if abs(right) > _EXPONENT:
            raise TemplateRuntimeError(f"it computes a power of {right}, the largest is {_EXPONENT}")
        if isinstance(left, int):
            _check_bits(left.bit_length() * right)
    elif operator == "%" and isinstance(left, str):
        check_size(_percent_size(left, right))


def check_format(text: str, arguments: Arguments) -> None:
    """Raise TemplateRuntimeError if str.format would make a text that is too large."""
    try:
        fields = [(field, spec or "") for _, field, spec, _ in Formatter().parse(text) if field is not None]
    except ValueError:
        return  # str.format refuses it
    if any("{" in spec for _, spec in fields):
        raise TemplateRuntimeError("it formats to a width that it computes")
    given = (*arguments.positional, *arguments.named.values())
    largest = max(map(written_size, given), default=0)
    check_size(len(text) + len(fields) * largest + sum(_widths(spec) for _, spec in fields))


def check_filter(name: str, value: Any, arguments: Arguments) -> None:
    """Raise TemplateRuntimeError if a filter would make a value that is too large, or take too long."""
    size = written_size(value)
    written_size((arguments.positional, arguments.named))
    if name in _ITERATING and isinstance(value, str):
        check_elements(len(value))
    if name in _SLOW_FILTERS and size > _SLOW:
        raise TemplateRuntimeError(f"it gives the filter {name} more than {_SLOW} characters")
    if estimate := _FILTERS.get(name):
        check_size(estimate(value, arguments))


def check_method(owner: Any, name: str, arguments: Arguments) -> None:
    """Raise TemplateRuntimeError if a method would make a value that is too large, or take too long."""
    if isinstance(owner, list | tuple):
        written_size(owner)  # `count` and `index` compare all of it
    if isinstance(owner, int) and name == "to_bytes":
        check_size(arguments.number(0, "length", 1))
    if not isinstance(owner, str | bytes):
        return
    if name in ("encode", "decode") and len(owner) > _SLOW:
        raise TemplateRuntimeError(f"it gives the method {name} more than {_SLOW} characters")
    if name in _SEARCHES and len(owner) * arguments.length(0, "sub") > _STEPS:
        raise TemplateRuntimeError(f"it searches a text of {len(owner)} characters for one that is as long")
    if name in ("split", "rsplit", "splitlines"):
        separator = arguments.get(0, "sep") if name != "splitlines" else None
        check_elements(len(owner.splitlines()) if name == "splitlines" else len(owner.split(separator, ELEMENTS + 1)))
    if estimate := _METHODS.get(name):
        check_size(estimate(owner, arguments))


def _parts(value: object) -> Sequence[object]:
    """Return the values inside a value."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, _COLLECTIONS):
        return list(value)
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, Namespace):
        return list(getattr(value, _ATTRIBUTES).values())
    return ()


_COLLECTIONS: tuple[type[Collection[object]], ...] = (
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_ATTRIBUTES = "_Namespace__attrs"
"""Attribute of a namespace that holds what a template has set there."""


def _check_bits(bits: int) -> None:
    if bits > _BITS:
        raise TemplateRuntimeError(f"it computes an integer of more than {_BITS} bits")


def _check_product(left: Any, right: Any) -> None:
    for each, times in ((left, right), (right, left)):
        if isinstance(each, str | bytes) and isinstance(times, int):
            check_size(len(each) * times)
        if isinstance(each, list | tuple) and isinstance(times, int):
            check_elements(len(each) * times)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def _widths(spec: str) -> int:
    """Return the sum of the numbers in a format. Raise TemplateRuntimeError for one that no text needs."""
    widths = [int(found[:20]) for found in _WIDTH.findall(spec)]
    for width in widths:
        if width > _MOST_WIDTH:
            raise TemplateRuntimeError(f"it formats to a width of {width}")
    return sum(widths)


def _percent_size(text: str, values: Any) -> int:
    """Return the characters of `text % values`, or more."""
    given = values if isinstance(values, tuple) else (values,)
    starred = max((each for each in given if isinstance(each, int)), default=0)
    total, fields = len(text), 0
    for field in _PERCENT.finditer(text):
        fields += 1
        for width in field.groups():
            total += starred if width == "*" else _widths(width or "")
    size = written_size(values)
    return total + (size if isinstance(values, tuple) else fields * size)


def _replaced(text: Any, arguments: Arguments) -> int:
    old, new = arguments.get(0, "old"), arguments.get(1, "new")
    if not isinstance(old, str | bytes) or not isinstance(new, str | bytes):
        return 0
    if not isinstance(text, type(old)):
        text = str(text)
    return int(text.count(old)) * len(new)


def _stripped(text: Any, arguments: Arguments) -> int:
    if len(str(text)) * arguments.length(0, "chars") > _STEPS:
        raise TemplateRuntimeError("it strips more characters than a text needs")
    return 0


def _indented(text: Any, arguments: Arguments) -> int:
    width = arguments.get(0, "width", 4)
    return (len(str(text).splitlines()) + 1) * (len(width) if isinstance(width, str) else arguments.number(0, "width"))


def _joined(values: Any, separator: Any) -> int:
    count = len(values) if hasattr(values, "__len__") else 0
    return written_size(values) + count * len(str(separator))


def _listed(count: int) -> int:
    check_elements(count)
    return 0


def _summed(values: Any, arguments: Arguments) -> int:
    start = arguments.get(1, "start", 0)
    if not isinstance(start, int | float):
        raise TemplateRuntimeError("it sums up values that are no numbers")
    return 0


def _rounded(value: Any, arguments: Arguments) -> int:
    if abs(arguments.number(0, "precision")) > _DIGITS:
        raise TemplateRuntimeError(f"it rounds to a precision of more than {_DIGITS} digits")
    return 0


def _translated(text: Any, arguments: Arguments) -> int:
    table = arguments.get(0, "table")
    if not isinstance(table, Mapping):
        return len(text)
    return len(text) * max((len(each) for each in table.values() if isinstance(each, str)), default=1)


def _tabs(text: Any, arguments: Arguments) -> int:
    return len(text) + int(text.count("\t" if isinstance(text, str) else b"\t")) * arguments.number(0, "tabsize", 8)


def _padded(text: Any, arguments: Arguments) -> int:
    return arguments.number(0, "width", 80)


def _links(text: Any, arguments: Arguments) -> int:
    added = sum(len(each) for each in (*arguments.positional, *arguments.named.values()) if isinstance(each, str))
    return len(str(text)) * (1 + added)


Estimate = Callable[[Any, Arguments], int]

_FILTERS: dict[str, Estimate] = {
    "batch": lambda values, given: _listed(given.number(0, "linecount")),
    "center": _padded,
    "format": lambda text, given: _percent_size(str(text), given.named or given.positional),
    "indent": _indented,
    "join": lambda values, given: _joined(values, given.get(0, "d", "")),
    "replace": _replaced,
    "round": _rounded,
    "slice": lambda values, given: _listed(given.number(0, "slices")),
    "sum": _summed,
    "trim": _stripped,
    "urlize": _links,
    "wordwrap": lambda text, given: len(str(text)) * max(1, given.length(2, "wrapstring")),
}
"""Filters -> estimates of the characters that they make."""

_METHODS: dict[str, Estimate] = {
    "center": _padded,
    "expandtabs": _tabs,
    "join": lambda text, given: _joined(given.get(0, "iterable"), text),
    "ljust": _padded,
    "lstrip": _stripped,
    "replace": _replaced,
    "rjust": _padded,
    "rstrip": _stripped,
    "strip": _stripped,
    "translate": _translated,
    "zfill": _padded,
}
"""Methods of texts -> the same."""

_ITERATING = frozenset(("batch", "groupby", "list", "map", "reject", "select", "slice", "sort", "unique"))
_SLOW_FILTERS = frozenset(("pprint", "striptags", "urlize", "wordwrap"))
_SEARCHES = frozenset(("rfind", "rindex", "rpartition", "rsplit"))
"""Methods whose search may compare each character of the text with each of the other one."""
