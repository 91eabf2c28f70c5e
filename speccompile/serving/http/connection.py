"""HTTP connections with limits of size and time.

uvicorn limits neither the number nor the time of headers, nor connections of one client, and its protocol classes are
made to be replaced (`Config.http`). So this class adds limits to the one over h11, which is plain Python and checks
sizes while headers come; the one over httptools keeps headers and trailers of any size.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from speccompile.serving.http.connection_limits import RESERVED_PATHS, ConnectionLimits, Connections
from speccompile.serving.http.errors import INVALID, UNAVAILABLE, RequestError
from speccompile.serving.http.json_text import dumps
from speccompile.serving.http.received import Received
from speccompile.serving.http.request_head import path_of

_UNANSWERED = (h11.IDLE, h11.SEND_RESPONSE)
"""States in which no answer has begun."""
_LONGEST = 200
"""Maximum number of characters of h11's message in an answer."""
_RESERVE_SECONDS = 2.0
"""Seconds for the headers of a connection of the reserve."""


def limited_protocol(limits: ConnectionLimits) -> Callable[..., "LimitedProtocol"]:
    """Return what `uvicorn.Config` takes as `http`: it makes a protocol for each connection."""
    return partial(LimitedProtocol, connections=Connections(limits))


class LimitedProtocol(H11Protocol):
    """Connection that ends when its client exceeds a limit, after an answer that says which."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None, *, connections: Connections,
    ) -> None:  # fmt: skip
        super().__init__(config, server_state, app_state, _loop)
        self._connections, self._limits = connections, connections.limits
        self._is_reserve, self._begun = False, self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._awaited = ""
        self._unread: asyncio.TimerHandle | None = None
        self._checked = _CheckedConnection(self._limits)
        self.conn = self._checked

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_reserve = self._connections.admit(self, self.client[0] if self.client else "")
        self._checked.is_reserve = self._is_reserve
        self._wait_for("request")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_reserve:
            self.transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.release(self)
        self._wait_for("")
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self._limits.body_seconds, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def shutdown(self) -> None:
        """Close the connection, or after the response in progress. One whose request has not come whole is ended."""
        if self._awaited == "body":
            self.abort()
        else:
            super().shutdown()

    @property
    def is_idle(self) -> bool:
        """Return whether the connection is between two requests, or had its time for the headers of the first, and has
        begun none."""
        if self._awaited == "request":
            return self.loop.time() - self._begun > self._limits.header_seconds
        return self.conn.their_state is h11.IDLE and not self._awaited

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, or exceeds a limit, and close the connection."""
        status, said = self._checked.refused
        kind = UNAVAILABLE if status == 503 else INVALID
        self._refuse(RequestError(said or msg, status=status, kind=kind, code="connection_refused"))

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a server may ignore Upgrade, and answers as if it were not there."""

    def _refuse(self, error: RequestError) -> None:
        if self.conn.our_state in _UNANSWERED:
            body = dumps(error.to_json())
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))),
                       ("Connection", "close")]  # fmt: skip
            reason = HTTPStatus(error.status).phrase.encode()
            response = h11.Response(status_code=error.status, headers=headers, reason=reason)
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Set the time limit for what the client has to send now."""
        if self.transport.is_closing():
            self._wait_for("")
        elif self.conn.their_state is h11.SEND_BODY:
            self._wait_for("body")
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait_for("headers")
        elif self.conn.their_state is h11.IDLE and self.cycle is None:
            self._wait_for("request")
        else:
            self._wait_for("")  # uvicorn closes a connection that is idle between requests

    def _wait_for(self, part: str) -> None:
        """Begin the time limit for a part of a request, unless it has begun. "": end it."""
        if part == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited, self._deadline = part, None
        if part:
            own = self._limits
            seconds = {"request": own.idle_seconds, "headers": own.header_seconds, "body": own.body_seconds}[part]
            seconds = min(seconds, _RESERVE_SECONDS) if self._is_reserve else seconds
            self._deadline = self.loop.call_later(seconds, self._expire, part, seconds)

    def _expire(self, part: str, seconds: float) -> None:
        if self.transport.is_closing():
            return
        if part == "request":
            self.transport.close()  # nothing was asked
        elif self.conn.our_state in _UNANSWERED:
            limit = "body_seconds" if part == "body" else "header_seconds"
            said = f"the {part} of a request did not come within {seconds:g} seconds: the limit {limit}"
            self._refuse(RequestError(said, status=408, code="timeout"))
        else:
            self.abort()


class _CheckedConnection(h11.Connection):
    """h11's connection of a server, which refuses requests with too many or too long headers, also those that come at
    once. refused: status and message of the refusal."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        self._limits, self.is_reserve = limits, False
        self.refused = (400, "")
        self._receive_buffer = self._received = Received(limits.header_bytes)

    def receive_data(self, data: bytes) -> None:
        """Add what has come, without empty lines before a request: some clients send one behind a body."""
        is_between = self.their_state is h11.IDLE and not self.trailing_data[0]
        text = data.lstrip(b"\r\n") if is_between else data
        if text or not data:  # nothing at all is the end of what comes
            super().receive_data(text)

    def start_next_cycle(self) -> None:
        """Begin the next request, without empty lines of a client that did not wait for the answer."""
        super().start_next_cycle()
        waits = bytes(self._receive_buffer)
        self._receive_buffer.maybe_extract_at_most(len(waits) - len(waits.lstrip(b"\r\n")))

    def next_event(self) -> Any:
        """Return the next event. Raise h11.RemoteProtocolError, and keep its status."""
        self._received.in_body = self.their_state is h11.SEND_BODY
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._check(event)
                event = h11.Request(
                    method=event.method, target=path_of(event.target), headers=event.headers,
                    http_version=event.http_version,
                )  # fmt: skip
        except h11.RemoteProtocolError as error:
            said, status = str(error)[:_LONGEST], error.error_status_hint
            if said.startswith("malformed chunk footer"):
                said = "a chunk is longer than its size says"
            if status == 431:
                said = f"the line and headers of a request take more than {self._limits.header_bytes} bytes: the limit "
                said += "header_bytes"
            self.refused = (status, said)
            raise
        return event

    def _check(self, request: h11.Request) -> None:
        size = len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers)
        if size > self._limits.header_bytes:
            raise h11.RemoteProtocolError("too large", error_status_hint=431)
        if len(request.headers) > self._limits.headers:
            said = f"the request has more than {self._limits.headers} headers: the limit headers"
            raise h11.RemoteProtocolError(said, error_status_hint=400)
        if self.is_reserve and request.target.partition(b"?")[0] not in RESERVED_PATHS:
            raise h11.RemoteProtocolError("too many connections are open: try again later", error_status_hint=503)
