"""The one thread that owns a bundle, and everybody else's way to it."""

import threading
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from speccompile.errors import BusyError
from speccompile.runtime.serving.events import Observer
from speccompile.runtime.serving.limits import Limits
from speccompile.runtime.serving.request import Piece, Request

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Batch, Bundle, Prompt


class Service:
    """Takes requests from any thread until it is closed. While it is open nobody else may use the bundle."""

    def __init__(self, bundle: "Bundle", limits: Limits | None = None, observer: Observer | None = None) -> None:
        self.bundle, self.limits, self.observer = bundle, limits or Limits(), observer or Observer()
        self._waiting = deque[tuple[Request, "Batch"]]()
        self._running = 0
        self._changed = threading.Condition()
        self._draining = False
        self._thread = threading.Thread(target=self._work, name="speccompile-service", daemon=True)
        self._thread.start()

    def submit(self, prompt: "Prompt", *, client: str = "", salt: str = "", **options: Any) -> Request:
        """Ask for one prompt to be continued. Options as in `Bundle.generate_batch`, for one prompt. client: whose
        request it is, for `Limits.client_rows`; salt: only requests with the same share what is kept of their prompts.

        Raises PromptError or UsageError for what the bundle cannot take, BusyError where too much waits or the service
        is closing.
        """
        from speccompile.runtime.bundle import Batch

        batch = Batch(self.bundle, [prompt], **options)
        request = Request(len(batch.rows))
        with self._changed:
            if self._draining:
                self.observer.refused("draining")
                raise BusyError("the service is closing: it takes no more requests", retry_after=None)
            if len(self._waiting) >= self.limits.requests:
                self.observer.refused("requests")
                raise BusyError(f"{len(self._waiting)} requests wait already, which is the limit", retry_after=1.0)
            self._waiting.append((request, batch))
            self._changed.notify_all()
        return request

    @property
    def waiting(self) -> int:
        """Requests that have no row yet."""
        return len(self._waiting)

    @property
    def failure(self) -> Exception | None:
        """What the engine has failed with: the service has ended then, and takes no more requests."""
        return None

    @property
    def running(self) -> int:
        """Sequences that have a row."""
        return self._running

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more requests; with drain those that are there are finished first, for at most `timeout` seconds,
        then the rest end with finish_reason `cancelled`. Safe to call twice."""
        with self._changed:
            self._draining = True
            if not drain:
                for request, _ in self._waiting:
                    request.cancel()
            self._changed.notify_all()
        self._thread.join(timeout)

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._draining)
                if not self._waiting:
                    return
                request, batch = self._waiting.popleft()
                self._running = len(batch.rows)
            try:
                self._serve(request, batch)
            except Exception as error:  # noqa: BLE001 -- whatever it is, whoever asked must hear it, the rest goes on
                request.put(error)
            self._running = 0

    def _serve(self, request: Request, batch: "Batch") -> None:
        shown = [(0, 0)] * len(batch.rows)
        for row in batch.rows:
            row.watched = row.stream is not None
        for _ in batch.run():
            for index, row in enumerate(batch.rows):
                pieces, tokens = shown[index]
                if not row.active or request.cancelled:
                    continue
                logprobs = None if row.logprobs is None else row.logprobs[tokens:]
                request.put(
                    Piece(
                        index,
                        "".join(row.pieces[pieces:]),
                        row.token_ids[tokens:],
                        logprobs,
                        None,
                        row.top_logprobs and row.top_logprobs[tokens:],
                    )
                )
                shown[index] = (len(row.pieces), len(row.token_ids))
            if request.cancelled:
                for row in batch.rows:
                    row.finish_reason = row.finish_reason or "cancelled"
        for index, generation in enumerate(batch.generations()):
            pieces, tokens = shown[index]
            row = batch.rows[index]
            logprobs = None if row.logprobs is None else row.logprobs[tokens:]
            request.put(
                Piece(
                    index,
                    "".join(row.pieces[pieces:]),
                    row.token_ids[tokens:],
                    logprobs,
                    generation,
                    row.top_logprobs and row.top_logprobs[tokens:],
                )
            )
            self.observer.ended(generation)
