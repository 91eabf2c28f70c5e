"""Random JSON schemas of what constraints support, each of which something satisfies and no text without end does."""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

_NAMES = st.sampled_from(["id", "name", "über", "a b", 'say "x"', "tags", "n", "value", "\n", "$ref"])
_PATTERNS = ["^[a-z]{1,6}$", "^(yes|no)$", "^[0-9]{2}-[A-F]$", "^é?x{2,3}$", "^\\d+(\\.\\d{1,2})?$"]
_FORMATS = ["date", "ipv4", "uuid"]
_VALUES = [None, True, 0, -7, 2.5, "", "text", "zwölf", [], [1, "a"], {"a": None}]

_LEAVES = st.one_of(
    st.sampled_from([{"type": "null"}, {"type": "boolean"}]),
    st.fixed_dictionaries({"type": st.just("string"), "minLength": st.integers(0, 3), "maxLength": st.integers(3, 12)}),
    st.fixed_dictionaries({"type": st.just("string"), "pattern": st.sampled_from(_PATTERNS)}),
    st.fixed_dictionaries({"type": st.just("string"), "format": st.sampled_from(_FORMATS)}),
    st.fixed_dictionaries(
        {"type": st.just("integer"), "minimum": st.integers(-999, 0), "maximum": st.integers(0, 10**6)}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("integer"),
            "multipleOf": st.sampled_from([2, 5, 10]),
            "minimum": st.just(0),
            "maximum": st.just(990),
        }
    ),
    st.fixed_dictionaries({"enum": st.lists(st.sampled_from(_VALUES), min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": st.sampled_from(_VALUES)}),
)


def _array(parts: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    sizes = {"minItems": st.integers(0, 2), "maxItems": st.integers(2, 3)}
    tuples = st.lists(parts, min_size=1, max_size=3).map(
        lambda its: {"type": "array", "prefixItems": its, "items": False, "minItems": len(its)}
    )
    return st.fixed_dictionaries({"type": st.just("array"), "items": parts, **sizes}) | tuples


@st.composite
def _object(draw: st.DrawFn, parts: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(_NAMES, parts, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _chosen(parts: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.lists(parts, min_size=1, max_size=3).map(lambda its: {"anyOf": its})


@st.composite
def _shared(draw: st.DrawFn, parts: st.SearchStrategy[Schema]) -> Schema:
    """Return a schema two of whose properties are the same one, by reference."""
    each = {"$ref": "#/$defs/part"}
    return {"$defs": {"part": draw(parts)}, "type": "object", "properties": {"left": each, "right": each},
            "required": ["left"], "additionalProperties": False}  # fmt: skip


_PARTS = st.recursive(_LEAVES, lambda parts: _array(parts) | _object(parts) | _chosen(parts), max_leaves=6)
SCHEMAS: st.SearchStrategy[Schema] = _PARTS | _object(_PARTS) | _shared(_PARTS)
