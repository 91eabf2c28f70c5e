"""Child processes that read requests, as the server sees them."""

import asyncio
import os
import socket
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from speccompile.errors import EngineError, OverloadedError
from speccompile.machine.forker_process import ForkerProcess, limit_of, split_answer, task_head
from speccompile.serving.http.errors import UNAVAILABLE, RequestError
from speccompile.serving.http.reading.last_first import LastFirst
from speccompile.serving.http.reading.limits import ReadLimits

_CHILD = "speccompile.serving.http.reading.child"
_QUICK_SECONDS = 0.1
"""Processor seconds of a first attempt. Most requests need less, and so do not wait for a slow one."""
_QUICK_NICENESS, _SLOW_NICENESS = 5, 10
"""Niceness of first and of later attempts: the decoding of running requests goes first."""
_QUICK_CHILDREN = 2
"""Maximum number of children in a first attempt. Later attempts have half as many children as processors."""
_PATIENCE = 60.0
"""Seconds that reading may take in all, waiting included, on a busy machine."""
_REMEMBERED = 256
"""Number of bodies over a limit that are remembered, to refuse the same ones at once."""


class ReaderProcesses:
    """Children that read requests, and the process that forks them. `run` belongs to one event loop."""

    def __init__(self, folder: Path, name: str, limits: ReadLimits) -> None:
        """Start the forking process, which opens the texts of the bundle in `folder` meanwhile."""
        self.limits = limits
        self._quick = LastFirst(_QUICK_CHILDREN)
        self._slow = LastFirst(max(1, (os.cpu_count() or 1) // 2))
        self._waiting = 0
        self._over = OrderedDict[bytes, RequestError]()
        self._open = dict[asyncio.WriteTransport, asyncio.AbstractEventLoop]()
        settings = {"folder": str(folder.resolve()), "name": name, "grammar_bytes": limits.grammar_bytes}
        self._forker = ForkerProcess(_CHILD, settings)

    def wait(self) -> None:
        """Wait until tasks can begin. Raise EngineError if the forking process has ended."""
        if not self._forker.is_ready():
            self.close()
            raise EngineError("the process that reads requests has ended", hint="its own message stands above this one")

    async def run(self, task: str, data: bytes) -> bytes:
        """Return the result of a task. Raise RequestError if it fails, exceeds a limit, or too many wait. Cancelling it
        ends its child."""
        if self._waiting >= self.limits.waiting:
            raise OverloadedError(f"{self._waiting} requests wait to be read already", retry_after=1.0)
        key = blake2b(data, digest_size=16, person=task.encode()[:16]).digest()
        self._waiting += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._attempts(task, data, key)
        except TimeoutError:
            raise RequestError(
                "the request waited too long to be read", status=503, kind=UNAVAILABLE, code="timeout",
                headers={"Retry-After": "1"},
            ) from None  # fmt: skip
        finally:
            self._waiting -= 1

    async def _attempts(self, task: str, data: bytes, key: bytes) -> bytes:
        if key not in self._over:
            async with self._quick:
                found = await self._attempt(
                    task, data, min(_QUICK_SECONDS, self.limits.seconds), niceness=_QUICK_NICENESS
                )
            if found is not None:
                return found
        async with self._slow:
            if key in self._over:  # the same body, perhaps while this one waited
                raise self._over[key].with_traceback(None)  # else it would grow with every raise
            try:
                found = await self._attempt(task, data, self.limits.seconds, niceness=_SLOW_NICENESS)
                if found is not None:
                    return found
                raise self._exceeded(f"more than {self.limits.seconds:g} seconds of a processor", "read_seconds")
            except RequestError as error:
                if error.code == "limit_exceeded":
                    self._over[key] = error
                    if len(self._over) > _REMEMBERED:
                        self._over.popitem(last=False)
                raise

    async def _attempt(self, task: str, data: bytes, seconds: float, *, niceness: int) -> bytes | None:
        """Return the result of a task, or None if it needs more seconds of a processor. Raise RequestError."""
        reader, writer = await asyncio.open_unix_connection(sock=self._begin())
        self._open[writer.transport] = asyncio.get_running_loop()
        answer = b""
        try:
            with suppress(ConnectionError):  # the child ended early; an answer says why
                writer.write(task_head(task, seconds, self.limits.memory_mib, niceness))
                writer.write(data)
                await writer.drain()
                if not writer.is_closing():
                    writer.write_eof()
            with suppress(ConnectionError):
                answer = await reader.read()
        finally:
            del self._open[writer.transport]
            writer.transport.abort()  # ends the child if it still works
        return self._answer(*split_answer(answer))

    def _answer(self, error: dict[str, Any] | None, result: bytes) -> bytes | None:
        if error is None:
            return result
        if "signal" not in error:
            raise RequestError(error.pop("message"), **error)
        limit = limit_of(error["signal"]) if error["signal"] else ""
        if limit == "seconds":
            return None
        if limit == "depth":
            raise RequestError("the request is nested too deeply", code="limit_exceeded", hint="ask for a simpler form")
        if limit == "memory":
            raise self._exceeded(f"more than {self.limits.memory_mib} MiB of memory", "read_memory")
        raise RequestError(
            "the server is closing", status=503, kind=UNAVAILABLE, code="draining", headers={"Retry-After": "1"}
        )

    @staticmethod
    def _exceeded(what: str, limit: str) -> RequestError:
        option = limit.replace("_", "-")
        return RequestError(
            f"reading this request takes {what}: the limit {limit}", code="limit_exceeded",
            hint=f"send a shorter text or a simpler form, or serve with a larger --{option}",
        )  # fmt: skip

    def _begin(self) -> socket.socket:
        """Return the server's end of a new task's socket."""
        try:
            task = self._forker.begin()
        except OSError:
            raise OverloadedError("the server is closing", retry_after=None) from None
        task.setblocking(False)
        return task

    def close(self) -> None:
        """End the forking process and all children. Any thread may call it, also twice."""
        if not self._forker.close():
            return
        for transport, loop in list(self._open.items()):
            with suppress(RuntimeError):  # the loop has ended, and its sockets with it
                loop.call_soon_threadsafe(transport.abort)
