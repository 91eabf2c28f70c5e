"""Child processes that read requests, as the server sees them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from speccompile.errors import EngineError, OverloadedError
from speccompile.serving.http.errors import UNAVAILABLE, RequestError
from speccompile.serving.http.reading.last_first import LastFirst
from speccompile.serving.http.reading.limits import ReadLimits

_FORKER = "speccompile.serving.http.reading.forker"
_QUICK_SECONDS = 0.1
"""Seconds of a processor for a first attempt, which most requests need less of: so they wait for no slow one."""
_QUICK_NICENESS, _SLOW_NICENESS = 5, 10
"""Niceness of first and of later attempts: the decoding of running requests goes first."""
_QUICK_CHILDREN = 2
"""Most children that are in a first attempt. Later attempts have half as many children as there are processors."""
_PATIENCE = 60.0
"""Seconds that reading may take in all, with the waiting, on a machine that is busy."""
_REMEMBERED = 256
"""Bodies over a limit that are remembered: the same ones are refused at once."""


class ReaderProcesses:
    """Children that read requests, and the process that forks them. `run` belongs to one event loop."""

    def __init__(self, folder: Path, name: str, limits: ReadLimits) -> None:
        """Start the forking process, which opens the texts of the bundle in `folder` meanwhile."""
        self.limits = limits
        self._quick = LastFirst(_QUICK_CHILDREN)
        self._slow = LastFirst(max(1, (os.cpu_count() or 1) // 2))
        self._waiting, self._closed = 0, False
        self._over = OrderedDict[bytes, RequestError]()
        self._open = dict[asyncio.WriteTransport, asyncio.AbstractEventLoop]()
        self._lock = threading.Lock()
        self._settings = {
            "folder": str(folder.resolve()), "name": name, "memory_mib": limits.memory_mib,
            "grammar_bytes": limits.grammar_bytes,
        }  # fmt: skip
        self._start()

    def _start(self) -> None:
        self._server, theirs = socket.socketpair()
        settings = json.dumps(self._settings | {"descriptor": theirs.fileno()})
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 -- this program itself
                [sys.executable, "-P", "-m", _FORKER, settings], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=_environment(),
                start_new_session=True,  # a terminal's Ctrl-C is for the server, which ends it
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until tasks can begin. Raise EngineError if the forking process has ended."""
        if not self._server.recv(16):
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
                raise self._over[key].with_traceback(None)  # or it would keep one more for each time
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
            with suppress(ConnectionError):  # the child has ended early: its answer, if it has one, says why
                given = {"task": task, "seconds": seconds, "niceness": niceness}
                writer.write(json.dumps(given).encode() + b"\n")
                writer.write(data)
                await writer.drain()
                if not writer.is_closing():
                    writer.write_eof()
            with suppress(ConnectionError):
                answer = await reader.read()
        finally:
            del self._open[writer.transport]
            writer.transport.abort()  # ends the child if it still works
        head, _, result = answer.partition(b"\n")
        return self._answer(json.loads(head or b'{"signal": 0}'), result)

    def _answer(self, error: dict[str, Any] | None, result: bytes) -> bytes | None:
        if error is None:
            return result
        if "signal" not in error:
            raise RequestError(error.pop("message"), **error)
        if error["signal"] == signal.SIGPROF:
            return None
        if error["signal"] in (signal.SIGSEGV, signal.SIGBUS):
            raise RequestError("the request is nested too deeply", code="limit_exceeded", hint="ask for a simpler form")
        if error["signal"]:
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
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                self._send(theirs)
            except OSError:
                ours.close()
                raise OverloadedError("the server is closing", retry_after=None) from None
        return ours

    def _send(self, task: socket.socket) -> None:
        """Send one end of a task's socket to the forking process; if that has died, to a new one. Raise OSError."""
        try:
            socket.send_fds(self._server, [b"t"], [task.fileno()])
        except OSError:
            with self._lock:
                if self._closed:
                    raise
                self._end()
                self._start()
            socket.send_fds(self._server, [b"t"], [task.fileno()])

    def _end(self) -> None:
        self._server.close()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the forking process and all children. Any thread may call it, also twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._end()
        for transport, loop in list(self._open.items()):
            with suppress(RuntimeError):  # the loop has ended, and its sockets with it
                loop.call_soon_threadsafe(transport.abort)


def _environment() -> dict[str, str]:
    """Return this process's variables, without threads in libraries: a process with several must not fork."""
    return os.environ | {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
