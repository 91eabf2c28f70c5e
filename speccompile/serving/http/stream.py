"""Await the deltas of requests, and send them as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from speccompile.runtime import Generation
from speccompile.serving.http.errors import to_request_error
from speccompile.serving.http.json_text import dumps
from speccompile.serving.http.response import ResponseBuilder
from speccompile.serving.scheduler import OutputDelta, Request

DONE = b"data: [DONE]\n\n"


async def deltas(requests: Sequence[Request]) -> AsyncIterator[tuple[int, OutputDelta]]:
    """Yield the deltas of all requests as they come, each with the number of its choice. Raise a request's error."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(ready.set)

    for request in requests:
        request.on_ready(wake)
    first, waiting = 0, []
    for request in requests:
        waiting.append((first, request))
        first += request.sequences
    while waiting:
        await ready.wait()
        ready.clear()
        for item in list(waiting):
            first, request = item
            try:
                while (piece := request.poll()) is not None:
                    yield first + piece.index, piece
            except StopIteration:
                waiting.remove(item)


async def collect(requests: Sequence[Request]) -> list[Generation]:
    """Wait for all sequences, and return their generations, those of the first request first."""
    ended = {index: piece.generation async for index, piece in deltas(requests) if piece.generation is not None}
    return [ended[index] for index in sorted(ended)]


async def cancel_on_disconnect(http: HttpRequest, work: Callable[[], Any]) -> Any:
    """Return a coroutine's result, or None if the client disconnects before; the coroutine is then cancelled."""
    working, leaving = asyncio.ensure_future(work()), asyncio.ensure_future(_disconnect(http))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, leaving):
            task.cancel()


async def _disconnect(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


class Events(StreamingResponse):
    """Streaming response. If it ends early, also because the client disconnects, its requests are cancelled."""

    def __init__(self, answer: ResponseBuilder, requests: Sequence[Request], headers: dict[str, str]) -> None:
        super().__init__(_events(answer, requests), media_type="text/event-stream", headers=headers)
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for request in self._requests:
                request.cancel()


async def _events(answer: ResponseBuilder, requests: Sequence[Request]) -> AsyncIterator[bytes]:
    """Yield the events of a response. A later error is an event too: the status has already been sent."""
    for chunk in answer.first_chunks():
        yield event(chunk)
    ended: dict[int, Generation] = {}
    try:
        async for index, piece in deltas(requests):
            for chunk in answer.chunks(index, piece):
                yield event(chunk)
            if piece.generation is not None:
                ended[index] = piece.generation
        for chunk in answer.last_chunks([ended[index] for index in sorted(ended)]):
            yield event(chunk)
    except Exception as error:  # noqa: BLE001 -- the client must receive any error
        yield event(to_request_error(error).to_json())
    yield DONE


def event(data: dict[str, Any]) -> bytes:
    """Return a server-sent event with JSON data."""
    return b"data: " + dumps(data) + b"\n\n"
