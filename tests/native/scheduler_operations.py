"""One schedule of requests, run by both languages' schedulers: events, deltas and numbers are compared every step.

Both have a clock that goes on by 1/1024 of a second whenever it is asked, so that all that depends on measured costs is
the same: sizes of chunks, copies, times in events.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from speccompile.errors import EngineError, SpeccompileError
from speccompile.runtime import Bundle, Generation
from speccompile.serving.scheduler import Limits, Observer, OutputDelta, Request
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.native.slot_operations import NativeSlots, RecordedPolicy

TICK = 1 / 1024

NAMES = {"requests": 64, "tokens": 65536, "sequences": 16, "queue_seconds": None, "seconds": None, "client_rows": None,
         "reuse": True, "scheduling_policy": "fcfs"}  # fmt: skip
"""Limits with their defaults."""


class Recorder(Observer):
    """Writes down what it is told, as native/tests/scheduler.cpp does."""

    def __init__(self) -> None:
        self.events: list[list[Any]] = []

    def refused(self, reason: str) -> None:
        self.events.append(["refused", reason])

    def queued(self, waiting: int, running: int) -> None:
        self.events.append(["queued", waiting, running])

    def admitted(self, prompt_tokens: int, cached_tokens: int, queue_seconds: float) -> None:
        self.events.append(["admitted", prompt_tokens, cached_tokens, queue_seconds])

    def preempted(self) -> None:
        self.events.append(["preempted"])

    def first_token(self, seconds: float) -> None:
        self.events.append(["first_token", seconds])

    def inter_token_latency(self, seconds: float, tokens: int) -> None:
        self.events.append(["inter_token_latency", seconds, tokens])

    def round(self, tokens: int, drafts: Sequence[int], accepted: Sequence[int]) -> None:
        self.events.append(["round", tokens, list(drafts), list(accepted)])

    def stepped(self, tokens: int, used: float) -> None:
        self.events.append(["stepped", tokens, used])

    def ended(self, generation: Generation) -> None:
        found = generation
        self.events.append(["ended", found.finish_reason, len(found.token_ids), found.cached_tokens, found.seconds,
                            found.prefill_seconds, found.queue_seconds, found.first_token_seconds])  # fmt: skip

    def failed(self, error: Exception) -> None:
        self.events.append(["failed"])


class PythonSchedule:
    """Python's scheduler. `run` returns what native/tests/scheduler.cpp answers."""

    def __init__(self, bundle: Bundle, widths: Sequence[int], limits: Mapping[str, Any]) -> None:
        self._ticks = 0
        self._recorder = Recorder()
        bundle._loop.drafting.policy = RecordedPolicy(list(widths))  # type: ignore[assignment]  # the rest is not asked for
        self._scheduler = Scheduler(bundle, Limits(**limits), self._recorder, self._clock)
        self._requests: list[Request] = []
        self._open: list[bool] = []

    def _clock(self) -> float:
        self._ticks += 1
        return self._ticks * TICK

    def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        refused = None
        try:
            self._operate(asked)
        except SpeccompileError as error:
            refused = str(error)
        events, self._recorder.events = self._recorder.events, []
        deltas = [delta for number in range(len(self._requests)) for delta in self._take(number)]
        scheduler = self._scheduler
        counts = {"waiting": scheduler.waiting, "running": scheduler.running, "idle": scheduler.is_idle}
        return {"refused": refused, "events": events, "deltas": deltas} | counts

    def _operate(self, asked: Mapping[str, Any]) -> None:
        match dict(asked):
            case {"submit": options}:
                request = self._scheduler.submit(asked["prompt"], **asked["terms"], **options)
                self._requests.append(request)
                self._open.append(True)
            case {"cancel": number}:
                self._requests[number].cancel()
            case {"drain": cancels}:
                self._scheduler.closing = True
                if cancels:
                    self._scheduler.cancel_all()
            case {"fail": message}:
                self._scheduler.fail(EngineError(message))
            case _:
                self._scheduler.step()

    def _take(self, number: int) -> Iterator[list[Any]]:
        while self._open[number]:
            try:
                piece = self._requests[number].poll()
            except StopIteration:
                self._open[number] = False
            except SpeccompileError as error:
                self._open[number] = False
                yield [number, str(error)]
            else:
                if piece is None:
                    return
                yield [number, *_described(piece)]


def _described(piece: OutputDelta) -> list[Any]:
    end, best = piece.generation, [[list(pair) for pair in each] for each in piece.top_logprobs or []]
    ended = [None, None] if end is None else [end.finish_reason, end.mode]
    return [piece.index, piece.text, piece.token_ids, piece.logprobs or [], best, piece.draft_tokens, piece.accepted,
            *ended]  # fmt: skip


class NativeSchedule(NativeSlots):
    """The same in C++, in a process of its own."""

    def __init__(
        self, program: Path, folder: Path, onnxruntime: Path, widths: Sequence[int], limits: Mapping[str, Any]
    ) -> None:
        opened = {"limits": NAMES | dict(limits)}
        super().__init__(program, folder, onnxruntime, list(widths), **opened)
