"""Run rounds when an engine is opened, so that the first generation neither times rounds nor meets first runs.

A generation that must find out what its rounds cost decodes some of them without drafts. So they are timed when an
engine is opened for the first time on a processor, and recorded (`round_times`) for later processes.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.round_times import RecordedTimes
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.speedup_model import Times
from speccompile.runtime.stopwatch import clock
from speccompile.runtime.window_invariance import write_neutral_inputs

LIMIT_SECONDS = 0.1
"""Time that the measurement may take. Parts that take longer together run once: where runs take that long, the memory
that a first run allocates is a small part of it."""

MOST_RUNS = 6
"""Maximum number of runs of each part, the first of which is not counted."""

SMALL_SECONDS, SMALL_RUNS = 0.005, 3
"""Seconds of a round without drafts up to which a model is small, and the runs of each part with which every process
opens it: binding graphs, and their first runs, cost such a model as much as ten rounds, and what one process measured
may have met a busy machine."""


def prepare_rounds(loop: DecodeLoop, manifest: Manifest, times: RecordedTimes) -> None:
    """Time rounds, unless this machine has recorded what they cost, and let the draft length start from the times. Time
    those of a small model in any case. All slots of `loop` must be free. Persistent drafter states change; reset them
    afterwards."""
    known = times.known
    if known is None:
        times.begin(measure_times(loop, manifest))
    elif known["autoregressive"] <= SMALL_SECONDS:
        times.begin(measure_times(loop, manifest, runs=SMALL_RUNS))
    if start := known or times.known:  # what other processes found tells more than a few runs here
        loop.drafting.policy.expect_times(start)


def measure_times(loop: DecodeLoop, manifest: Manifest, *, runs: int = MOST_RUNS) -> dict[str, Any] | None:
    """Return what rounds of one sequence cost, in seconds, in the form of `SpeedupModel.measured_times`; None for a
    bundle whose draft length does not adapt. runs: maximum number of runs of each part.

    What the runs commit lies behind the length of every slot.
    """
    if not loop.can_draft or not loop.drafting.may_adapt:
        return None
    rounds, full = loop.rounds, loop.rounds.tokens + 1
    write_neutral_inputs(rounds.engine, manifest)
    rows = range(1) if rounds.supports_batch_slices else range(rounds.batch)
    fused = "step" in rounds.graphs
    single = rounds.forward(1, 1, 1, fused=False, logprobs=False, rows=rows)
    window = rounds.forward(full, full, 1, fused=fused, logprobs=False, rows=rows)
    has_draft = "draft" in rounds.graphs and not fused

    def verify(width: int, run: Callable[[], None]) -> Callable[[], None]:
        def verified() -> None:
            rounds.n_given[:], rounds.n_total[:], rounds.length[:] = 1, width, 0
            run()

        return verified

    parts = [verify(1, single.verify), verify(full, window.verify), *([window.draft] if has_draft else [])]
    seconds, wide, *draft = _seconds(parts, runs, LIMIT_SECONDS)
    times = {
        "autoregressive": seconds,
        "windows": {str(full): wide},
        "drafting": draft[0] if has_draft else 0.0,
        "catch_up": 0.0,
    }
    single.has_run = window.has_run = True
    window.has_drafted = has_draft
    return times


def _seconds(parts: Sequence[Callable[[], None]], runs: int, limit: float) -> list[float]:
    """Return the typical seconds of each part, on the clock of rounds, in up to `runs` runs, which end after `limit`
    seconds. The first run of a part counts only if it is the only one.

    Parts take turns: a process begins with cold caches, which would make the part that is timed first seem slow.
    """
    now, begun, ran = clock(on_device=False), perf_counter(), 0
    while not ran or (ran < runs and perf_counter() - begun < limit):
        if ran < 2:
            times = [Times() for _ in parts]
        for run, found in zip(parts, times, strict=True):
            start = now()
            run()
            found.add(now() - start)
        ran += 1
    return [found.typical for found in times]
