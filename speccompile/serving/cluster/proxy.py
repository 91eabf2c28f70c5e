"""HTTP proxy: forward a request to the replica that its prompt prefix selects."""

from collections.abc import Awaitable, Callable
from typing import Any

from speccompile.serving.cluster.affinity import routing_key
from speccompile.serving.http.body import Json
from speccompile.serving.http.errors import NOT_FOUND, UNAVAILABLE, RequestError

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

_PLAIN = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "headers", "client")
"""Keys of an ASGI scope that are sent to the replica's process."""


class Proxy:
    """ASGI application over a handle of the replicas. body: maximum bytes of a request's body. busy: exception of the
    handle when too many requests wait."""

    def __init__(self, handle: Any, body: int, busy: type[Exception]) -> None:
        self._handle, self._body, self._busy = handle.options(stream=True), body, busy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/metrics":
            refused = RequestError(
                "every replica counts for itself, and this address has several", status=404, kind=NOT_FOUND,
                hint="read those of Ray, which have each replica's name",
            )  # fmt: skip
            await _refuse(refused, scope, receive, send)
            return
        body = await self._read(receive)
        plain = {"root_path": "", "server": None} | {name: scope[name] for name in _PLAIN if name in scope}
        answer = self._handle.ask.remote(routing_key(body), plain, body)
        try:
            async for message in answer:
                await send(message)
        except self._busy as error:
            refused = RequestError(
                f"the replicas are busy: {error}",
                status=503,
                kind=UNAVAILABLE,
                code="busy",
                headers={"Retry-After": "1"},
            )
            await _refuse(refused, scope, receive, send)
        except BaseException:
            answer.cancel()
            raise

    async def _read(self, receive: Receive) -> bytes:
        """Return the body, or just enough of it that the replica finds it too large."""
        data, more = bytearray(), True
        while more and len(data) <= self._body:
            message = await receive()
            data += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(data)


async def _refuse(refused: RequestError, scope: Scope, receive: Receive, send: Send) -> None:
    await Json(refused.to_json(), status_code=refused.status, headers=refused.headers)(scope, receive, send)
