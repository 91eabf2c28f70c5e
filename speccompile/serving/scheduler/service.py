"""Thread that owns a bundle, and the interface to it for other threads."""

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO
from speccompile.errors import UsageError
from speccompile.runtime.audio.rules import RuleMatcher
from speccompile.runtime.generation_options import GenerationKeywords, GenerationOptions
from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.request import Request
from speccompile.serving.scheduler.scheduler import Scheduler
from speccompile.serving.scheduler.session_folder import SessionFolder

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Bundle
    from speccompile.runtime.text.prompts import Prompt

LAST_ROUND = 5.0
"""Seconds that the round in progress may take once its tokens are no longer needed."""


def check_served(manifest: Manifest) -> None:
    """Raise UsageError for a bundle that is not served over HTTP."""
    if manifest.source is not None and AUDIO not in manifest.source:
        raise _sourced("reads texts with an encoder", "a language model or one that hears: OpenAI's API has no source")


def check_prompted(manifest: Manifest, door: str) -> None:
    """Raise UsageError for a bundle whose target has an encoder. door: what has prompts alone, in words."""
    if manifest.source is not None:
        raise _sourced("has an encoder", f"a language model: {door} have prompts, and no sources or sounds")


def _sourced(what: str, expected: str) -> UsageError:
    return UsageError(
        f"received a bundle whose target {what}, expected {expected}",
        hint="generate with the bundle itself, or with its service in Python: Bundle.serve().submit(source=...)",
    )


class Service:
    """Takes requests from any thread or task until it is closed. Meanwhile it has exclusive use of the bundle.

    A context manager, `with` or `async with`: at the end it finishes the present requests, or after an error cancels
    them."""

    def __init__(
        self,
        bundle: "Bundle",
        limits: Limits | None = None,
        observer: Observer | None = None,
        sessions: SessionFolder | None = None,
    ) -> None:
        """Wait until other threads release the bundle. sessions: where texts are kept, so that their prefixes serve
        later services too. Raise EngineError if this thread or another service uses the bundle, UsageError if its texts
        cannot be kept."""
        self.bundle = bundle
        with ExitStack() as holding:
            holding.enter_context(bundle._exclusive(serving=True))
            self._scheduler = Scheduler(bundle, limits, observer, sessions=sessions)
            self._holding = holding.pop_all()
        self._thread = threading.Thread(target=self._run_thread, name="speccompile-service", daemon=True)
        self._thread.start()

    def submit(
        self,
        prompt: "Prompt | None" = None,
        options: GenerationOptions | None = None,
        *,
        client: str = "",
        salt: str = "",
        reuse: bool = True,
        priority: int = 0,
        matcher: RuleMatcher | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Request:
        """Submit one prompt, or the source of a target with an encoder, without waiting for its turn. Options as in
        `Bundle.generate`; if it asks for more sequences than there are batch slots, they run in turn. client: name of
        the client, for `Limits.client_rows`; salt: only requests with the same salt share cached tokens; reuse: whether
        this request does; priority: lower numbers get a slot earlier, if the service has that policy; matcher: rules of
        a transcript, see `runtime.audio`.

        Raise PromptError or UsageError for what the bundle cannot take, OverloadedError if the queue is full or the
        service is closing, EngineError if it has failed.
        """
        return self._scheduler.submit(
            prompt, options, client=client, salt=salt, reuse=reuse, priority=priority, matcher=matcher, **keywords
        )

    @property
    def limits(self) -> Limits:
        return self._scheduler.limits

    @property
    def waiting(self) -> int:
        """Number of requests without a batch slot."""
        return self._scheduler.waiting

    @property
    def running(self) -> int:
        """Number of sequences that have a batch slot."""
        return self._scheduler.running

    @property
    def failure(self) -> Exception | None:
        """Error of the engine: the service has ended then, and takes no more requests."""
        return self._scheduler.failure

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more requests. With `drain`, finish the present ones first, for at most `timeout` seconds. The rest
        end after the round in progress, with finish_reason `cancelled`. An engine that does not return from it within a
        few seconds is abandoned. Safe to call twice."""
        self._drain(cancel=not drain)
        self._thread.join(timeout if drain else LAST_ROUND)
        if self._thread.is_alive():
            self._drain(cancel=True)
            self._thread.join(LAST_ROUND)

    def _drain(self, *, cancel: bool) -> None:
        scheduler = self._scheduler
        with scheduler.changed:
            scheduler.closing = True
            if cancel:
                scheduler.cancel_all()
            scheduler.changed.notify_all()

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    async def __aenter__(self) -> "Service":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close, drain=kind is None)  # the event loop goes on

    def _run_thread(self) -> None:
        with self._holding:
            try:
                while self._has_work():
                    self._scheduler.step()
            except Exception as error:  # noqa: BLE001 -- every waiting client must receive any error
                self._scheduler.fail(error)
            self._scheduler.close()

    def _has_work(self) -> bool:
        """Wait until there is work, or never will be. Return whether there is work."""
        scheduler = self._scheduler
        with scheduler.changed:
            scheduler.changed.wait_for(lambda: scheduler.closing or not scheduler.is_idle)
            return not scheduler.is_idle
