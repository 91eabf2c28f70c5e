"""The one thread that owns a bundle, and everybody else's way to it."""

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.request import Request
from speccompile.serving.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Bundle, Prompt

LAST_ROUND = 5.0
"""Seconds that the round that is under way may take, once nobody waits for its tokens."""


class Service:
    """Takes requests from any thread until it is closed. While it is open nobody else may use the bundle."""

    def __init__(self, bundle: "Bundle", limits: Limits | None = None, observer: Observer | None = None) -> None:
        """Waits for whoever uses the bundle in another thread. Raises EngineError where this thread does, or another
        service."""
        self.bundle, self._holding = bundle, ExitStack()
        self._holding.enter_context(bundle._exclusive(serving=True))
        self._scheduler = Scheduler(bundle, limits, observer)
        self._thread = threading.Thread(target=self._run_thread, name="speccompile-service", daemon=True)
        self._thread.start()

    def submit(
        self, prompt: "Prompt", *, client: str = "", salt: str = "", reuse: bool = True, **options: Any
    ) -> Request:
        """Ask for one prompt to be continued. Options as in `Bundle.generate_batch`, for one prompt; more sequences
        than the bundle has rows come in turn. client: whose request it is, for `Limits.client_rows`; salt: only
        requests with the same share what is kept of their texts; reuse: whether this one does.

        Raises PromptError or UsageError for what the bundle cannot take, BusyError where too much waits or the service
        is closing, EngineError where it has failed.
        """
        return self._scheduler.submit(prompt, client=client, salt=salt, reuse=reuse, **options)

    @property
    def limits(self) -> Limits:
        return self._scheduler.limits

    @property
    def waiting(self) -> int:
        """Requests that have no row yet."""
        return self._scheduler.waiting

    @property
    def running(self) -> int:
        """Sequences that have a row."""
        return self._scheduler.running

    @property
    def failure(self) -> Exception | None:
        """What the engine has failed with: the service has ended then, and takes no more requests."""
        return self._scheduler.failure

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more requests; with drain those that are there are finished first, for at most `timeout` seconds,
        then the rest end with finish_reason `cancelled`, with the round that is under way; an engine that does not come
        back from it within a few seconds is left behind. Safe to call twice."""
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

    def _run_thread(self) -> None:
        with self._holding:
            try:
                while self._has_work():
                    self._scheduler.step()
            except Exception as error:  # noqa: BLE001 -- whatever it is, all who wait for tokens must hear it
                self._scheduler.fail(error)

    def _has_work(self) -> bool:
        """Wait until there is something to do, or never will be."""
        scheduler = self._scheduler
        with scheduler.changed:
            scheduler.changed.wait_for(lambda: scheduler.closing or not scheduler.is_idle)
            return not scheduler.is_idle
