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
"""Time that the measurement may take. Rounds that take longer together run once: where runs take that long, the memory
that a first run allocates is a small part of it."""

MOST_RUNS = 7
"""Maximum number of timed rounds of each kind, the first two of which are not counted if there are more."""

SMALL_SECONDS = 0.005
"""Seconds of a round without drafts up to which a model is small: every process times it. Binding graphs, and their
first runs, cost such a model as much as ten rounds, and what one process measured may have met a busy machine."""

REHEARSALS = 16
"""Number of decisions that an opening makes: a process's first one takes Python as long as a small model's round, and
until it has run its code some ten times, which only then it specializes, each takes three times as long as later."""


def prepare_rounds(loop: DecodeLoop, manifest: Manifest, times: RecordedTimes) -> None:
    """Time rounds, unless this machine has recorded their times, and let the draft length start from the times. Time
    those of a small model in any case. All slots of `loop` must be free. Persistent drafter states change; reset them
    afterwards."""
    known = times.known
    if known is None or known["autoregressive"] <= SMALL_SECONDS:
        times.begin(measure_times(loop, manifest, least_turns=2 if known else 1))
    if start := known or times.known:  # what other processes found tells more than a few runs here
        loop.drafting.policy.expect_times(start)
        for _ in range(REHEARSALS):
            loop.drafting.policy.begin(1, 1)


def measure_times(loop: DecodeLoop, manifest: Manifest, *, least_turns: int = 1) -> dict[str, Any] | None:
    """Return what rounds of one sequence cost, in seconds, in the form of `SpeedupModel.measured_times`; None for a
    bundle whose draft length does not adapt, and if there is time for fewer turns: first runs tell less than a record.

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
    widths = loop.drafting.widths
    # Drafting is a part of a fused round, so that those of other widths do not lie between the two.
    narrow = [widths[len(widths) // 2]] if fused and len(widths) > 2 else []
    between = [rounds.forward(width, width, 1, fused=True, logprobs=False, rows=rows) for width in narrow]

    def verify(width: int, run: Callable[[], None]) -> Callable[[], None]:
        def verified() -> None:
            rounds.n_given[:], rounds.n_total[:], rounds.length[:] = 1, width, 0
            run()

        return verified

    drafting = [verify(full, window.verify), *([window.draft] if has_draft else [])]
    others = [[verify(width, each.verify)] for width, each in zip(narrow, between, strict=True)]
    ways = [[verify(1, single.verify)], drafting, *others]
    found = _seconds(ways, MOST_RUNS, LIMIT_SECONDS, least_turns)
    for each in (single, window, *between):
        each.has_run = True
    window.has_drafted = has_draft
    if found is None:
        return None
    (seconds,), (wide, *draft), *rest = found
    return {
        "autoregressive": seconds,
        "windows": {str(width): each for width, (each,) in zip(narrow, rest, strict=True)} | {str(full): wide},
        "drafting": draft[0] if has_draft else 0.0,
        "catch_up": 0.0,
    }


def _seconds(
    ways: Sequence[Sequence[Callable[[], None]]], runs: int, limit: float, least_turns: int = 1
) -> list[list[float]] | None:
    """Return the typical seconds of each graph run, on the clock of rounds, in up to `runs` timed rounds, which end
    after `limit` seconds; None if that ends before `least_turns`. ways: the ways to decode, each as the graph runs of a
    round.

    The first round of a way counts only if there is time for no other: it allocates; the first way then runs once more
    in any case. Ways take turns: a process begins with cold caches, which would make the one that is timed first seem
    slow. And from the third turn on a way runs a round before one is timed, and what was timed before counts no more:
    in use rounds follow rounds of their kind, whose weights a cache may hold. A round of a target that fits into one
    would seem half as long again behind a round with drafts.
    """
    now, begun, turns, first = clock(on_device=False), perf_counter(), 0, 0.0

    def time(way: Sequence[Callable[[], None]], found: Sequence[Times]) -> None:
        for run, each in zip(way, found, strict=True):
            start = now()
            run()
            each.add(now() - start)

    while not turns or (turns < runs and _end_of_next(perf_counter() - begun, first, turns) < limit):
        if turns < 3:
            times = [[Times() for _ in way] for way in ways]
        for way, found in zip(ways, times, strict=True):
            for run in way if turns > 1 else ():
                run()
            time(way, found)
        turns += 1
        first = first or perf_counter() - begun
    if turns < least_turns:
        return None
    if turns == 1:  # the first way is that without drafts, which all others are compared with: it may not be too slow
        times[0] = [Times() for _ in ways[0]]
        time(ways[0], times[0])
    return [[each.typical for each in found] for found in times]


def _end_of_next(spent: float, first: float, turns: int) -> float:
    """Return the seconds at the end of the next turn, after `turns` turns: the third and later ones have two rounds.
    first: seconds of the first, whose runs allocate memory."""
    return 2 * spent if turns == 1 else spent + 2 * (spent - first) / (2 * turns - 3)
