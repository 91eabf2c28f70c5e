"""Bodies of requests and responses over HTTP."""

from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.json_text import dumps


class Json(Response):
    """A response of JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


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


def _too_large(most: int) -> RequestError:
    return RequestError(
        f"the body is larger than {most} bytes, which is the limit here", status=413, code="body_too_large"
    )
