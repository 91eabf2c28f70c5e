"""Checks for the part of JSON Schema that describes requests. `openapi.json` holds the same schemas."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from speccompile.serving.http.errors import RequestError

Schema = Mapping[str, Any]
"""Schema with the keywords below and `items`, `properties`, `additionalProperties`, `required`, `anyOf`. Other keys
have no effect."""

_SHOWN = 80


class _Rule(NamedTuple):
    """A keyword: whether a value is valid, and the words for an error. Values of other types are valid, as in the
    standard."""

    is_valid: Callable[[Any, Any], bool]
    words: str


class Violation(NamedTuple):
    """Violation of a schema: the field, the received value, and the expected one."""

    where: str
    received: Any
    expected: str


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean" | "string" | "array" | "object":
            return isinstance(value, {"boolean": bool, "string": str, "array": list, "object": dict}[kind])
        case "integer":  # 3.0 is an integer, by the standard
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case _:
            return _is_number(value) and (isinstance(value, int) or math.isfinite(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _names(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_RULES = {
    "type": _Rule(lambda value, kinds: any(_is(value, kind) for kind in _names(kinds)), "{}"),
    "enum": _Rule(lambda value, known: any(_same(value, each) for each in known), "{}"),
    "minimum": _Rule(lambda value, limit: not _is_number(value) or value >= limit, "{} or more"),
    "exclusiveMinimum": _Rule(lambda value, limit: not _is_number(value) or value > limit, "more than {}"),
    "maximum": _Rule(lambda value, limit: not _is_number(value) or value <= limit, "at most {}"),
    "minLength": _Rule(lambda value, limit: not isinstance(value, str) or len(value) >= limit, "{} characters or more"),
    "maxLength": _Rule(lambda value, limit: not isinstance(value, str) or len(value) <= limit, "at most {} characters"),
    "minItems": _Rule(lambda value, limit: not isinstance(value, list) or len(value) >= limit, "{} items or more"),
    "maxItems": _Rule(lambda value, limit: not isinstance(value, list) or len(value) <= limit, "at most {} items"),
    "maxProperties": _Rule(lambda value, limit: not isinstance(value, dict) or len(value) <= limit, "at most {} keys"),
}  # fmt: skip


def check(value: Any, schema: Schema, where: str = "") -> None:
    """Raise RequestError, naming the field, unless `value` (JSON, as Python reads it) matches the schema."""
    problem = first_problem(value, schema, where)
    if problem is not None:
        raise RequestError(
            f"{problem.where or 'the body'}: received {shown(problem.received)}, expected {problem.expected}",
            param=problem.where or None,
        )


def first_problem(value: Any, schema: Schema, where: str = "") -> Violation | None:
    """Return the first violation of a schema, or None."""
    return next(_problems(value, schema, where), None)


def _problems(value: Any, schema: Schema, where: str) -> Iterator[Violation]:
    for keyword, rule in _RULES.items():
        if keyword in schema and not rule.is_valid(value, schema[keyword]):
            yield Violation(where, value, rule.words.format(_listed(schema[keyword])))
    if "anyOf" in schema:
        yield from _of_none(value, schema["anyOf"], where)
    if isinstance(value, list) and "items" in schema and not _all_fit(value, schema["items"]):
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{where}[{index}]")
    if isinstance(value, dict):
        yield from _of_keys(value, schema, where)


def _all_fit(values: list[Any], schema: Schema) -> bool:
    """Return whether all values are known at once to fit: lists may have millions of plain numbers or texts."""
    kinds = set(map(type, values))
    if kinds == {int} and schema.keys() <= {"type", "minimum"} and schema.get("type") == "integer":
        return bool(min(values) >= schema.get("minimum", -math.inf))
    return kinds == {str} and dict(schema) == {"type": "string"}


def _of_none(value: Any, schemas: list[Schema], where: str) -> Iterator[Violation]:
    """Yield the violation of a value that matches none of several schemas: that of the first schema with its type."""
    found = [first_problem(value, schema, where) for schema in schemas]
    if None in found:
        return
    deeper = [problem for problem in found if problem is not None and problem.where != where]
    expected = " or ".join(dict.fromkeys(problem.expected for problem in found if problem is not None))
    yield deeper[0] if deeper else Violation(where, value, expected)


def _of_keys(value: dict[str, Any], schema: Schema, where: str) -> Iterator[Violation]:
    inside = f"{where}." if where else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield Violation(f"{inside}{name}", None, "it, which is required")
    for name, each in schema.get("properties", {}).items():
        if name in value:
            yield from _problems(value[name], each, f"{inside}{name}")
    if "additionalProperties" in schema:
        for name in (name for name in value if name not in schema.get("properties", {})):
            yield from _problems(value[name], schema["additionalProperties"], f"{inside}{name}")


def _listed(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return " or ".join(each if isinstance(each, str) else json.dumps(each) for each in value)


def shown(value: Any) -> str:
    """Return the beginning of a value's JSON, for a message."""
    if isinstance(value, dict | list) and len(value) > _SHOWN:
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)} entries"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}.."
