"""Twins of a bundle's methods for asyncio: a thread of their own does the work, and the event loop goes on.

asyncio is imported when a twin is called: programs without it do not wait for that.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from speccompile.machine.keywords import named_after
from speccompile.runtime.batch import Batch, Owner
from speccompile.runtime.exclusive_use import Caller
from speccompile.runtime.generation import Generation
from speccompile.runtime.generation_options import (
    CHAT_KEYWORDS,
    GenerationKeywords,
    GenerationOptions,
    resolve_options,
)
from speccompile.runtime.options import check_single
from speccompile.runtime.text.prompts import Prompt
from speccompile.runtime.text_stream import TextStream


class AsyncTextStream:
    """Asynchronous iterator over the pieces of text of one generation, and a context manager, `async with`, that closes
    it. Read by one task alone.

    The bundle is free for the next generation once the stream is exhausted, closed, or no longer referred to.
    """

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream
        self._thread = ThreadPoolExecutor(1, "speccompile-stream")
        self._piece: Future[str | None] | None = None
        """The next piece, on its way. It outlives a task that stops waiting for it, as after a timeout."""
        self._closed = False

    @property
    def generation(self) -> Generation | None:
        """See `TextStream.generation`."""
        return self._stream.generation

    def __repr__(self) -> str:
        return f"<Async{repr(self._stream)[1:]}"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        import asyncio

        if self._closed:
            raise StopAsyncIteration
        if self._piece is None:
            self._stream.hold_for(_caller())
            self._piece = self._thread.submit(next, self._stream, None)
        piece = await asyncio.shield(asyncio.wrap_future(self._piece))
        self._piece = None
        if piece is None:
            await self.aclose()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Stop early, after the round in progress, and free the bundle. Safe to call twice."""
        import asyncio

        if not self._closed:
            self._closed = True
            closed = self._thread.submit(self._stream.close)
            self._thread.shutdown(wait=False)
            await asyncio.wrap_future(closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Twinned(Owner, Protocol):
    """Bundle as its twins see it."""

    def _conversation(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None, options: GenerationOptions
    ) -> tuple[list[int], GenerationOptions]: ...

    def _streamed(self, prompt: Prompt | None, options: GenerationOptions) -> TextStream: ...


@named_after("Bundle")
class AsyncTwins:
    """Base of `Bundle`. Options and errors are those of the methods without the `a`. Calls of several tasks wait for
    each other; a service runs them together. A task that is cancelled ends its generation after the round in
    progress."""

    async def agenerate(
        self: Twinned,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Generation:
        """Generate from one prompt: see `generate`."""
        chosen = resolve_options("Bundle.agenerate", options, keywords)
        check_single(chosen.num_return_sequences)
        return (await _run_whole(lambda: Batch(self, [prompt], chosen)))[0]

    async def agenerate_batch(
        self: Twinned,
        prompts: Sequence[Prompt | None] = (),
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> list[Generation]:
        """Generate from several prompts together: see `generate_batch`."""
        chosen = resolve_options("Bundle.agenerate_batch", options, keywords)
        return await _run_whole(lambda: Batch(self, prompts, chosen))

    async def achat(
        self: Twinned,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Generation:
        """Generate the answer to a conversation: see `chat`."""
        chosen = resolve_options("Bundle.achat", options, keywords, CHAT_KEYWORDS)
        check_single(chosen.num_return_sequences)
        ids, chosen = self._conversation(messages, chat_template_kwargs, chosen)
        return (await _run_whole(lambda: Batch(self, [ids], chosen)))[0]

    def astream(
        self: Twinned,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> AsyncTextStream:
        """Return an asynchronous iterator over the pieces of text of one generation: see `stream`."""
        return AsyncTextStream(self._streamed(prompt, resolve_options("Bundle.astream", options, keywords)))

    def astream_chat(
        self: Twinned,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> AsyncTextStream:
        """Return an asynchronous iterator over the pieces of the answer to a conversation: see `stream_chat`."""
        chosen = resolve_options("Bundle.astream_chat", options, keywords, CHAT_KEYWORDS)
        return AsyncTextStream(self._streamed(*self._conversation(messages, chat_template_kwargs, chosen)))


def _caller() -> Caller:
    """Return the current task, which another thread works for."""
    import asyncio

    return Caller(task=asyncio.current_task())


async def _run_whole(begin: Callable[[], Batch]) -> list[Generation]:
    """Run a call on a thread of its own. A task that is cancelled meanwhile cancels it."""
    import asyncio

    cancelled, caller = threading.Event(), _caller()

    def work() -> list[Generation]:
        batch = begin()
        batch.caller = caller
        return batch.run_whole(cancelled.is_set)

    thread = ThreadPoolExecutor(1, "speccompile-generate")
    try:
        return await asyncio.wrap_future(thread.submit(work))
    finally:
        cancelled.set()
        thread.shutdown(wait=False)
