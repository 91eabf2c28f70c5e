"""JSON of requests and responses."""

import json
import math
import re
from typing import Any, NoReturn

from speccompile.serving.http.errors import RequestError

_DEEPEST = 500
"""Maximum number of lists and objects around a value, that of the server in C++."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of one half of a surrogate pair, as JSON writes it."""


def dumps(content: Any) -> bytes:
    """Return JSON in UTF-8. Half a surrogate pair, which UTF-8 cannot encode, stays an escape."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def parse(data: bytes) -> Any:
    """Return the JSON value in `data`. Raise RequestError for invalid JSON, and for text that is not Unicode."""
    try:
        text = data.decode("utf-8-sig")  # strict: json would let surrogates pass, and guess other encodings
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is no JSON: byte {error.start} is no UTF-8", code="invalid_json") from None
    except ValueError as error:  # invalid JSON, or a number with too many digits
        said, _, _ = str(error).partition("; use sys.")  # Python's hint is of no use to a client
        raise RequestError(f"the body is no JSON: {said}", code="invalid_json") from None
    if text.count("[") + text.count("{") > _DEEPEST:
        _check_depth(value)
    if _SURROGATE.search(text):
        _check_unicode(value)
    return value


def _check_depth(value: Any) -> None:
    inside = [value]
    for _ in range(_DEEPEST + 1):
        groups = [each for each in inside if isinstance(each, dict | list)]
        inside = [value for each in groups for value in (each.values() if isinstance(each, dict) else each)]
    if inside:
        raise RequestError("the body is nested too deeply", code="invalid_json")


def _check_unicode(body: Any) -> None:
    """Raise RequestError, naming the field, for a text or key with half a surrogate pair, which no tokenizer, grammar
    or template takes."""
    todo = [("", body)]
    while todo:
        where, value = todo.pop()
        if isinstance(value, dict):
            for name, each in value.items():
                todo += [(where, name), (f"{where}.{name}" if where else name, each)]
        elif isinstance(value, list):
            todo += [(f"{where}[{index}]", each) for index, each in enumerate(value)]
        elif isinstance(value, str) and not _is_unicode(value):
            shown = where.encode("ascii", "backslashreplace").decode()
            raise RequestError(
                f"{shown or 'the body'}: received a text with half a surrogate pair, expected Unicode text",
                param=shown or None, hint="send both halves, or the character itself",
            )  # fmt: skip


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _refuse_constant("-Infinity" if value < 0 else "Infinity")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
