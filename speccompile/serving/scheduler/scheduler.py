"""Which sequence has which row, and what the engine does next."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from speccompile.errors import EngineError, OverloadedError, UsageError
from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.latency import LatencyEstimates
from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.request import Request
from speccompile.serving.scheduler.scheduled import ScheduledSequence
from speccompile.serving.scheduler.slot_allocator import SlotAllocator, SlotAssignment
from speccompile.serving.scheduler.waiting_queue import WaitingQueue

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Bundle, Prompt


class Scheduler:
    """Takes requests from any thread; `tick` belongs to the one that has the bundle. A sequence waits, has its prompt
    read in one row of the bundle, one sequence at a time, and decodes beside the others until it ends."""

    def __init__(
        self,
        bundle: "Bundle",
        limits: Limits | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.bundle, self.limits, self.observer = bundle, limits or Limits(), observer or Observer()
        self.changed = threading.Condition()
        """Held to ask whether anything is there to do, notified when that may have changed."""
        self.closing = False
        """Whether no more requests are taken."""
        self.failure: Exception | None = None
        """What the engine has failed with."""
        self._clock, self._loop = clock, bundle._loop
        self._waiting, self._costs = WaitingQueue(self.limits), LatencyEstimates()
        self._seats = SlotAllocator(bundle.manifest.batch_size, can_reuse=self._loop.supports_prefix_reuse)
        self._reading: ScheduledSequence | None = None
        self._cancelled = False
        self._given = 0

    def submit(
        self, prompt: "Prompt", *, client: str = "", salt: str = "", reuse: bool = True, **options: Any
    ) -> Request:
        """As `Service.submit`."""
        from speccompile.runtime.bundle import Batch

        _check_sequences(options.get("num_return_sequences", 1), self.limits)
        batch = Batch(self.bundle, [prompt], side_by_side=False, **options)
        request, now = Request(len(batch.rows)), self._clock()
        sequences = [
            ScheduledSequence(
                request, index, row, batch.speculative, batch.adaptive, client, salt, reuse and self.limits.reuse, now
            )
            for index, row in enumerate(batch.rows)
        ]
        for row in batch.rows:
            row.decodes_every_round = row.stream is not None
        with self.changed:
            self._refuse(len(batch.rows[0].prompt))
            self._waiting.add(sequences)
            self.changed.notify_all()
        self._tell_queue()
        return request

    def _refuse(self, tokens: int) -> None:
        """Raise EngineError or BusyError where no request with so many tokens is taken now."""
        if self.failure is not None:
            self.observer.refused("failed")
            raise EngineError(f"the service has ended: {self.failure}", hint="open the bundle again") from self.failure
        if self.closing:
            self.observer.refused("draining")
            raise OverloadedError("the service is closing: it takes no more requests", retry_after=None)
        reason = self._waiting.exceeded_limit(tokens, len(self._seats) - self.running)
        if reason:
            self.observer.refused(reason)
            waiting = f"{self._waiting.requests} requests with {self._waiting.tokens} tokens wait already"
            raise OverloadedError(
                f"{waiting}: expected at most {getattr(self.limits, reason)} {reason}", retry_after=self._retry_after()
            )

    @property
    def waiting(self) -> int:
        """Requests that have no row yet."""
        with self.changed:
            return self._waiting.requests

    @property
    def running(self) -> int:
        """Sequences that have a row."""
        return len(self._seats.running)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not self._seats.running

    def cancel_all(self) -> None:
        """End everything that is there with the next tick."""
        self._cancelled = True

    def step(self) -> None:
        """What has ended goes, what waits comes, then one round for all that decode and a little of one prompt."""
        self._finish_expired()
        self._admit()
        self._decode()
        self._read()
        self._report()

    def _finish_expired(self) -> None:
        """End what was cancelled, or takes too long."""
        now = self._clock()
        with self.changed:
            over = self._waiting.pop_expired(lambda served: bool(self._end_of(served, now)))
            late = self._waiting.pop_expired(lambda served: self._is_late(served, now))
        for served in (*over, *self._seats.running):
            reason = self._end_of(served, now)
            if reason:
                served.row.finish(reason)
                self._end(served)
        for request in dict.fromkeys(served.request for served in late):
            self.observer.refused("queue_seconds")
            message = f"no row was free within {self.limits.queue_seconds} seconds"
            request.deliver(OverloadedError(message, retry_after=self._retry_after()))

    def _end_of(self, served: ScheduledSequence, now: float) -> str:
        """Why a sequence has to end now, "" where it need not. One for which its prompt leaves no room has ended."""
        if served.request.cancelled or self._cancelled:
            return "cancelled"
        if self.limits.seconds is not None and now - served.arrival_time > self.limits.seconds:
            return "timeout"
        return served.row.finish_reason

    def _is_late(self, served: ScheduledSequence, now: float) -> bool:
        """Whether it has waited for too long. Of a request that has begun, none has."""
        limit = self.limits.queue_seconds
        return limit is not None and now - served.arrival_time > limit and not served.request.begun

    def _admit(self) -> None:
        """Give the next sequence a row, unless the prompt of another is still being read."""
        if self._reading is not None or self._seats.is_full:
            return
        running = self._seats.running
        of_client = Counter(served.client for served in running)
        most = self.limits.client_rows or len(self._seats)
        with self.changed:
            served = self._waiting.pop(lambda each: of_client[each.client] < most)
        if served is None:
            return
        if not running:
            self._loop.start()
        place, served.start_time = self._seats.choose(served), self._clock()
        reuse = self._copied(served, place)
        self._seats.assign(place.slot, served)
        served.request.begun, self._reading = True, served
        served.cached = self._loop.admit(
            place.slot, served.row, speculative=served.speculative, adaptive=served.adaptive, reuse=reuse
        )
        self.observer.admitted(len(served.row.prompt), served.cached, served.start_time - served.arrival_time)

    def _copied(self, served: ScheduledSequence, place: SlotAssignment) -> int:
        """Copy the row that holds more of the prompt than the one it gets, where that pays. Returns how much is there.

        All sequences of one prompt but the first are copied: they were promised to be read once."""
        if place.source is None:
            return place.reuse
        own = self._seats.cached_prefix_length(place.slot, served)
        if not (served.index or self._costs.pays_to_copy(place.reuse - own)):
            return own
        start = self._clock()
        self._loop.copy(place.source, place.slot)
        self._costs.record_copy(self._clock() - start)
        return place.reuse

    def _decode(self) -> None:
        """One round of all whose prompts are read."""
        if self.running > (self._reading is not None):
            start, before = self._clock(), dict(self._loop.seconds)
            self._loop.decode()
            self._costs.record_round(self._clock() - start)
            self._distribute(before)

    def _read(self) -> None:
        """A chunk of the prompt that is being read: a small one while others decode."""
        served = self._reading
        if served is None or served.slot is None:
            return
        start, before = self._clock(), dict(self._loop.seconds)
        count = self._loop.prefill(served.slot, self._costs.chunk() if self.running > 1 else None)
        self._costs.record_prefill(count, self._clock() - start)
        self._given += count
        if self._loop.is_prefilled(served.slot):
            self._reading = None
        self._distribute(before)

    def _distribute(self, before: Mapping[str, float]) -> None:
        """Give out what a run has brought: to all that decode, and to the one whose prompt it has read. Where an engine
        runs all rows at once, those that decode go on while a prompt is read. before: what the loop's seconds were."""
        now, tokens = self._clock(), 0
        verify, draft = (self._loop.seconds[name] - before[name] for name in ("verify", "draft"))
        fresh = [served for served in self._seats.running if served.has_new_tokens]
        decoded = [served for served in fresh if served.first_token_time is not None]
        drafts = [served.row.draft_lengths[-1] for served in decoded]
        accepted = [served.row.path_lengths[-1] - 1 if served.row.draft_lengths[-1] else 0 for served in decoded]
        for served in fresh:
            count, gap = served.record_tokens(now)
            self._given += count
            if gap is None:
                self.observer.first_token(now - served.arrival_time)
            else:
                self.observer.inter_token_latency(gap, count)
                served.verify += verify
                served.draft += draft
                tokens += count
        if decoded:
            self.observer.round(tokens, drafts, accepted)
        for served in fresh:  # what has been given out has been counted
            if served.row.is_active:
                served.emit()
            else:
                self._end(served)

    def _end(self, served: ScheduledSequence) -> None:
        """A sequence has ended: its row is free, and whoever asked gets the rest."""
        if served is self._reading:
            self._reading = None
        if served.slot is not None:
            self._seats.release(served, self._loop.release(served.slot).tokens)
        if served.row.error is not None:
            served.request.cancel()  # its other sequences have nobody to read them
            self.observer.failed(served.row.error)
            served.request.deliver(served.row.error)
            return
        generation = self.bundle._generation(served.row, served.spent(self._clock()), speculative=served.speculative)
        self.observer.ended(generation)
        served.emit(generation)

    def _report(self) -> None:
        """How things stand, to whoever counts."""
        self._tell_queue()
        rows, most = self._seats.running, len(self._seats) * self.bundle.manifest.max_length
        self.observer.stepped(self._given, sum(len(served.row) for served in rows) / most)
        self._given = 0

    def _tell_queue(self) -> None:
        self.observer.queued(self.waiting, self.running)

    def _retry_after(self) -> float:
        """Seconds until what waits will have been read, by what reading has cost."""
        return max(1.0, self._costs.prefill_seconds(self._waiting.tokens))

    def fail(self, error: Exception) -> None:
        """The engine has failed: everything ends with its error, and nothing more is taken."""
        with self.changed:
            self.failure, running = error, self._seats.running
            waiting = self._waiting.pop_expired(lambda served: True)
            requests = dict.fromkeys(served.request for served in (*running, *waiting))
            self._seats, self._reading = SlotAllocator(len(self._seats)), None
        for request in requests:
            self.observer.failed(error)
            request.deliver(error)
        for served in running:
            if served.slot is not None:
                self._loop.release(served.slot)
        self._tell_queue()


def _check_sequences(asked: object, limits: Limits) -> None:
    if isinstance(asked, int) and asked > limits.sequences:
        raise UsageError(
            f"num_return_sequences: received {asked}, expected at most {limits.sequences}, the service's limit",
            hint="ask several times, or serve with larger limits (Limits.sequences)",
        )
