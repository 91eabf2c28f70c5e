"""Reading of requests in a thread if they are small, else in a child process."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from speccompile.serving.http.images import HeldPictures
from speccompile.serving.http.reading.limited_bundle import (
    Compile,
    ConstraintCache,
    LimitedBundle,
    UncompiledError,
    warm_up,
)
from speccompile.serving.http.reading.limits import ReadLimits
from speccompile.serving.http.reading.processes import ReaderProcesses
from speccompile.serving.http.reading.tasks import Reading, read_image
from speccompile.serving.http.requests import ParsedRequest, TokenizedBody

if TYPE_CHECKING:
    from speccompile.runtime.text_bundle import Texts

SMALL = 16 * 1024
"""Bytes of a body that is read in a thread: some milliseconds, whatever it holds."""
_THREADS = 4
"""Threads that read at once: each of them may keep the event loop waiting for Python's lock for 5 ms."""
_COMPILING = 2
"""Threads that compile grammars: without that lock, but for seconds."""
_SMALL_GRAMMAR = 8 * 2**20
"""Most bytes of a compiled grammar that is kept."""

T = TypeVar("T")


class Reader:
    """Reads the requests of one served model. Without a folder, as in tests, all in threads."""

    def __init__(self, bundle: "Texts", name: str, limits: ReadLimits, folder: Path | None = None) -> None:
        self._bundle, self._name, self._limits = bundle, name, limits
        self._held = HeldPictures()
        self._kept = ConstraintCache(lambda: bundle.grammars)
        self._threads, self._compiling = anyio.CapacityLimiter(_THREADS), anyio.CapacityLimiter(_COMPILING)
        self._children = None if folder is None else ReaderProcesses(folder, name, limits)
        if self._children is not None:
            warm_up(bundle)
            self._children.wait()

    async def request(self, task: str, data: bytes, *, speculative: bool) -> ParsedRequest:
        """Return the request in a body. speculative: default of requests that do not set it. Raise RequestError or
        OverloadedError, as the other methods do. Cancelling it ends a child that reads the body."""
        asked = await self._asked(task, data, speculative=speculative)
        self._held.take(asked.options.get("images", ()))
        return asked

    async def _asked(self, task: str, data: bytes, *, speculative: bool) -> ParsedRequest:
        if self._children is None or len(data) <= SMALL:
            known = self._bundle.grammars.compile if self._children is None else self._kept.get
            try:
                return await self._thread(lambda: self._reading(known, speculative).request(task, data))
            except UncompiledError:
                pass
        assert self._children is not None
        found = await self._children.run(task, data)
        finished = partial(self._finished, task, found, speculative=speculative)
        return await anyio.to_thread.run_sync(finished, limiter=self._compiling)

    async def answer(self, task: str, data: bytes) -> bytes:
        """Return the JSON of an answer that needs no engine."""
        if self._children is None or len(data) <= SMALL:
            return await self._thread(lambda: self._reading(self._kept.get).task(task)(data))
        return await self._children.run(task, data)

    def close(self) -> None:
        """End the children, and refuse what they are reading."""
        if self._children is not None:
            self._children.close()

    def _finished(self, task: str, found: bytes, *, speculative: bool) -> ParsedRequest:
        """Return the request that a child has read. It has compiled its grammar within the limits: so does this
        process."""
        read = json.loads(found)
        compile_ = partial(self._kept.compile, keep=read["grammar_bytes"] <= _SMALL_GRAMMAR)
        return self._reading(compile_, speculative).finished(
            task, TokenizedBody(read["fields"], read["prompts"], list(map(read_image, read["images"])))
        )

    def _reading(self, compile_: Compile, speculative: bool = True) -> Reading:
        return Reading(LimitedBundle(self._bundle, self._limits.grammar_bytes, compile_), self._name, speculative)

    async def _thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)
