"""Bodies of requests and responses over HTTP."""

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.json_text import dumps
from speccompile.serving.http.reading.last_first import LastFirst


class Json(Response):
    """A response of JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


class BodyReader:
    """Reads bodies of at most `most` bytes. Where many large ones come at once, their parts are taken one a turn of the
    event loop: so that other clients wait for one of them at most."""

    def __init__(self, most: int) -> None:
        self._most, self._turns = most, LastFirst(1)

    async def read(self, http: HttpRequest, wanted: str = "application/json") -> bytes:
        """Return the bytes of a request's body. Raise RequestError for more than the limit, or another type than
        `wanted`."""
        kind = http.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != wanted:
            raise RequestError(
                f"received Content-Type {kind[:80]!r}, expected {wanted}",
                status=415, code="unsupported_media_type",
            )  # fmt: skip
        length = http.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._most:
            raise _too_large(self._most)
        data = bytearray()
        try:
            async for part in http.stream():
                if data:
                    async with self._turns:
                        await asyncio.sleep(0)
                data += part
                if len(data) > self._most:
                    raise _too_large(self._most)
        except ClientDisconnect:
            raise RequestError("the client hung up before its body had come", status=499) from None
        return bytes(data)


def _too_large(most: int) -> RequestError:
    return RequestError(
        f"the body is larger than {most} bytes, which is the limit here", status=413, code="body_too_large"
    )
