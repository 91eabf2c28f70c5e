"""Scheduler: assign sequences to batch slots, and choose the engine's next work."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

from speccompile.errors import EngineError, OverloadedError
from speccompile.runtime.audio.rules import RuleMatcher
from speccompile.runtime.generation_options import GenerationKeywords, GenerationOptions, resolve_options
from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.latency import SMALLEST
from speccompile.serving.scheduler.limits import BY_PRIORITY, Limits
from speccompile.serving.scheduler.pictures import AwaitedPictures
from speccompile.serving.scheduler.preemption import Victims
from speccompile.serving.scheduler.prefix_reuse import PrefixReuse
from speccompile.serving.scheduler.request import Request
from speccompile.serving.scheduler.scheduled import ScheduledSequence
from speccompile.serving.scheduler.session_folder import SessionFolder
from speccompile.serving.scheduler.waiting_queue import WaitingQueue

if TYPE_CHECKING:
    from speccompile.runtime.bundle import Bundle
    from speccompile.runtime.text.prompts import Prompt


class Scheduler(PrefixReuse):
    """Takes requests from any thread; only the thread that owns the bundle calls `step`. A sequence waits, is prefilled
    in a batch slot, one sequence at a time, and decodes together with other sequences until it ends. By priority, a
    sequence may lose its slot to one of higher priority: it waits again, and then reads its prompt and its tokens so
    far, which gives the same tokens."""

    def __init__(
        self,
        bundle: "Bundle",
        limits: Limits | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = perf_counter,
        sessions: SessionFolder | None = None,
    ) -> None:
        """sessions: where texts are kept for later services. Raise UsageError if the bundle's cannot be."""
        super().__init__(bundle, clock, sessions)
        self.limits, self.observer = limits or Limits(), observer or Observer()
        self.changed = threading.Condition()
        """Condition held to check for work, and notified when there may be some."""
        self.closing = False
        """True once no more requests are taken."""
        self.failure: Exception | None = None
        """Error of the engine, which ended the service."""
        self._waiting = WaitingQueue(self.limits)
        self._reading: ScheduledSequence | None = None
        self._cancelled, self._given = False, 0

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
        """See `Service.submit`."""
        from speccompile.runtime.batch import Batch

        chosen = resolve_options("Service.submit", options, keywords, ("client", "salt", "reuse", "priority"))
        self.limits.check(chosen.num_return_sequences, priority)
        batch = Batch(self.bundle, [prompt], chosen, side_by_side=False, matcher=matcher)
        request, now = Request(len(batch.rows)), self._clock()
        shared = (batch.speculative, batch.adaptive, client, salt, reuse and self.limits.reuse, now, priority)
        sequences = [ScheduledSequence(request, index, row, *shared) for index, row in enumerate(batch.rows)]
        for row in batch.rows:
            row.decodes_every_round = row.stream is not None
        with self.changed:
            self._refuse(sequences[0])
            self._waiting.add(sequences)
            self.changed.notify_all()
        self._tell_queue()
        return request

    def _refuse(self, first: ScheduledSequence) -> None:
        """Raise EngineError or OverloadedError if a request, whose first sequence this is, cannot be taken now."""
        if self.failure is not None:
            self.observer.refused("failed")
            raise EngineError(f"the service has ended: {self.failure}", hint="open the bundle again") from self.failure
        if self.closing:
            self.observer.refused("draining")
            raise OverloadedError("the service is closing: it takes no more requests", retry_after=None)
        reason = self._waiting.exceeded_limit(len(first.row.prompt), len(self._slots) - self.running)
        if reason and not self._preempts(first):
            self.observer.refused(reason)
            waiting = f"{self._waiting.requests} requests with {self._waiting.tokens} tokens wait already"
            raise OverloadedError(
                f"{waiting}: expected at most {getattr(self.limits, reason)} {reason}", retry_after=self._retry_after()
            )

    def _preempts(self, first: ScheduledSequence) -> bool:
        """Return whether a new sequence gets the slot of a running one, which waits in its place. The queue exceeds its
        limit by at most one batch in this way."""
        running, slots = self._slots.running, len(self._slots)
        free = slots - len(running)
        if self.limits.scheduling_policy != BY_PRIORITY:
            return False
        if self._waiting.requests >= free + self.limits.requests + slots:
            return False
        victims = Victims(self.bundle, running, None, self._client_rows)
        for served in self._waiting.ahead_of(first)[free:]:
            victims.claim(served)
        return victims.of(first) is not None

    @property
    def waiting(self) -> int:
        """Number of requests without a batch slot."""
        with self.changed:
            return self._waiting.requests

    @property
    def running(self) -> int:
        """Number of sequences that have a batch slot."""
        return len(self._slots.running)

    @property
    def is_idle(self) -> bool:
        """Return whether there is nothing to do."""
        return not self._waiting and not self._slots.running and self._reading is None

    def cancel_all(self) -> None:
        """Cancel all requests with the next step."""
        self._cancelled = True

    def step(self) -> None:
        """Remove ended sequences, admit a waiting one, run a round of all decoding slots, and prefill prompts."""
        self._finish_expired()
        self._admit()
        self._decode()
        self._read()
        self._report()

    def _finish_expired(self) -> None:
        """End sequences that are cancelled or exceed a time limit."""
        now = self._clock()
        with self.changed:
            over = self._waiting.pop_expired(lambda served: bool(self._end_of(served, now)))
            late = self._waiting.pop_expired(lambda served: served.is_late(self.limits.queue_seconds, now))
        for served in (*over, *self._slots.running):
            reason = self._end_of(served, now)
            if reason:
                served.row.finish(reason)
                self._end(served)
        for request in dict.fromkeys(served.request for served in late):
            self.observer.refused("queue_seconds")
            message = f"no row was free within {self.limits.queue_seconds} seconds"
            request.deliver(OverloadedError(message, retry_after=self._retry_after()))

    def _end_of(self, served: ScheduledSequence, now: float) -> str:
        """Return why a sequence has to end now, or "". One whose prompt leaves no capacity has ended."""
        if served.request.cancelled or self._cancelled:
            return "cancelled"
        if self.limits.seconds is not None and now - served.arrival_time > self.limits.seconds:
            return "timeout"
        return served.row.finish_reason

    def _admit(self) -> None:
        """Assign a batch slot to the next sequence, unless another sequence is still in its prefill."""
        if not self._has_room():
            return
        running = self._slots.running
        served = self._reading or self._next(running)
        if served is None or not self._has_read(wait=not running):
            return
        place, now, is_first = self._slots.choose(served), self._clock(), served.start_time is None
        reuse = self._prepare(served, place)
        cached = self._loop.admit(
            place.slot, served.row, speculative=served.speculative, adaptive=served.adaptive, reuse=reuse
        )
        self._slots.assign(place.slot, served)
        if not is_first:
            served.cached = min(cached, served.cached)
            return
        served.start_time, served.cached, served.request.begun = now, cached, True
        self.observer.admitted(len(served.row.prompt), cached, now - served.arrival_time)

    def _has_room(self) -> bool:
        """Return whether a sequence can begin, after preempting another one of lower priority where that is needed."""
        reading = None if self._reading is None or self._reading.slot is None else self._reading
        if not self._slots.is_full:
            return reading is None
        if self.limits.scheduling_policy != BY_PRIORITY:
            return False
        victims = Victims(self.bundle, self._slots.running, reading, self._client_rows)
        pictures = AwaitedPictures(self._slots.longest_prefix)
        with self.changed:
            first = self._waiting.first(lambda served: victims.of(served) is not None and not pictures.lacks(served))
        victim = None if first is None else victims.of(first)
        if victim is not None:
            self._preempt(victim)
        return victim is not None

    def _preempt(self, served: ScheduledSequence) -> None:
        """Let a running sequence wait again. Its slot holds its text until another sequence takes it, and the folder of
        sessions may keep it for longer."""
        assert served.slot is not None, "it has no row"
        if served is self._reading:
            self._reading = None
        self._slots.release(served, self._loop.release(served.slot).tokens)
        self._keep_left(served)
        with self.changed:
            served.slot = None
            self._waiting.put_back(served)
        self.observer.preempted()

    def _next(self, running: list[ScheduledSequence]) -> ScheduledSequence | None:
        """Take a sequence out of the queue whose pictures are encoded, and begin to read the file that its prompt goes
        on from."""
        of_client, pictures = Counter(each.client for each in running), AwaitedPictures(self._slots.longest_prefix)
        with self.changed:
            served = self._waiting.pop(
                lambda each: of_client[each.client] < self._client_rows and not pictures.lacks(each)
            )
        if served is None:
            if not running:
                pictures.wait()  # the caller has nothing else to do
            return None
        self._reading = served  # known to `fail` from here on: the engine may fail before it has a slot
        if not running:
            self._loop.start()
        self._read_ahead(served)
        return served

    @property
    def _client_rows(self) -> int:
        return self.limits.client_rows or len(self._slots)

    def _decode(self) -> None:
        """Run one round of all decoding slots."""
        if self.running > (self._reading is not None and self._reading.slot is not None):
            start, before = self._clock(), dict(self._loop.seconds)
            self._loop.decode()
            self._costs.record_round(self._clock() - start)
            self._distribute(before)

    def _read(self) -> None:
        """Prefill a chunk of a prompt, small while others decode; more prompts follow until half its time is taken."""
        rivals = 1 + min(len(self._waiting), len(self._slots) - self.running), self.running - 1
        most, taken = self._costs.chunk(*rivals), 0
        while most != 0:
            count = self._prefill(most)
            if most is None or not count or self._reading is not None:
                return
            taken += max(count, SMALLEST)
            most = self._costs.chunk(*rivals, taken)
            if most:
                self._admit()

    def _prefill(self, most: int | None) -> int:
        """Prefill a chunk of the prompt in progress. Return its number of tokens, 0 while there is none to read."""
        served = self._reading
        if served is None or served.slot is None:
            return 0
        media = served.row.media
        if media is not None and not media.prepare(served.cached, waits=self.running == 1):
            return 0  # another slot no longer holds what it did: a picture is encoded beside rounds
        start, before = self._clock(), dict(self._loop.seconds)
        count = self._loop.prefill(served.slot, most)
        self._costs.record_prefill(count, self._clock() - start)
        self._given += count
        if self._loop.is_prefilled(served.slot):
            self._reading = None
            self._keep_prompt(served)
        self._distribute(before)
        return count

    def _distribute(self, before: Mapping[str, float]) -> None:
        """Deliver the tokens of a run to all decoding sequences, and to one whose prefill it has completed. Without
        batch slices, slots decode while a prompt is prefilled. before: the loop's seconds before the run."""
        now, tokens = self._clock(), 0
        verify, draft = (self._loop.seconds[name] - before[name] for name in ("verify", "draft"))
        fresh = [served for served in self._slots.running if served.has_new_tokens]
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
        for served in fresh:  # deltas are delivered after they have been counted
            if served.row.is_active:
                served.emit()
            else:
                self._end(served)

    def _end(self, served: ScheduledSequence) -> None:
        """End a sequence: release its slot and deliver the rest of its output."""
        if served is self._reading:
            self._reading = None
        if served.slot is not None:
            self._slots.release(served, self._loop.release(served.slot).tokens)
            self._keep_left(served)
        if served.row.error is not None:
            served.request.cancel()  # nothing reads the request's other sequences any more
            self.observer.failed(served.row.error)
            served.request.deliver(served.row.error)
            return
        generation = self.bundle._generation(served.row, served.spent(self._clock()), speculative=served.speculative)
        self.observer.ended(generation)
        served.emit(generation)

    def _report(self) -> None:
        """Report the present state to the observer."""
        self._tell_queue()
        rows, most = self._slots.running, len(self._slots) * self.bundle.manifest.max_length
        self.observer.stepped(self._given, sum(len(served.row) for served in rows) / most)
        self._given = 0

    def _tell_queue(self) -> None:
        self.observer.queued(self.waiting, self.running)

    def _retry_after(self) -> float:
        """Return the seconds until the waiting prompts will have been prefilled, estimated from measured costs."""
        return max(1.0, self._costs.prefill_seconds(self._waiting.tokens))

    def fail(self, error: Exception) -> None:
        """End all requests with the engine's error, and take no more."""
        with self.changed:
            self.failure, running = error, self._slots.running
            taken = [] if self._reading is None else [self._reading]
            waiting = self._waiting.pop_expired(lambda served: True)
            requests = dict.fromkeys(served.request for served in (*running, *taken, *waiting))
            self._slots.clear()
            self._reading = None
        for request in requests:
            self.observer.failed(error)
            request.deliver(error)
        for served in running:
            if served.slot is not None:
                self._loop.release(served.slot)
        self._loop.left = None  # the engine may have stopped in the middle of a run
        self._tell_queue()
