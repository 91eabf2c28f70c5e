"""JSON bodies of requests and responses."""

import json
import re
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from speccompile.serving.http.errors import RequestError


class Json(Response):
    """A response of JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


def dumps(content: Any) -> bytes:
    """Return JSON in UTF-8. Unpaired surrogates, which clients may send and UTF-8 cannot encode, stay escapes."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


async def read_body(http: HttpRequest, most: int) -> bytes:
    """Return the bytes of a request's body. Raise RequestError for more than `most` bytes, or another type than
    JSON."""
    kind = http.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(
            f"received Content-Type {kind[:80]!r}, expected application/json", status=415, code="unsupported_media_type"
        )
    length = http.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    data = bytearray()
    try:
        async for part in http.stream():
            data += part
            if len(data) > most:
                raise _too_large(most)
    except ClientDisconnect:
        raise RequestError("the client hung up before its body had come", status=499) from None
    return bytes(data)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of one half of a surrogate pair, as JSON writes it."""


def parse(data: bytes) -> Any:
    """Return the JSON value in `data`. Raise RequestError for invalid JSON, and for text that is not Unicode."""
    try:
        text = data.decode("utf-8-sig")  # strict: json would let surrogates pass, and guess other encodings
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:  # invalid JSON, invalid UTF-8, or a number with too many digits
        raise RequestError(f"the body is no JSON: {error}", code="invalid_json") from None
    if _SURROGATE.search(text):
        _check_unicode(value)
    return value


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


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _too_large(most: int) -> RequestError:
    return RequestError(
        f"the body is larger than {most} bytes, which is the limit here", status=413, code="body_too_large"
    )
