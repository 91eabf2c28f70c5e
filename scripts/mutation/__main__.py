"""Try the mutants of tests/mutants, and name those that no test notices."""

import argparse
import fcntl
import fnmatch
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter

from scripts.mutation.entries import EntryError, Mutant, read_mutants
from scripts.mutation.lanes import STOPPED, WORK, CommandError, Lane, stop_all
from scripts.mutation.trials import Outcome, Trials


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if tests notice all mutants, 1 if some survive, 2 if some cannot be tried."""
    args = _parse(arguments)
    try:
        mutants = [each for each in read_mutants() if _matches(each, args.only)]
        for mutant in mutants:
            mutant.mutated()
    except EntryError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if not mutants:
        print(f"mutants: received --only {args.only}, which matches none", file=sys.stderr)
        return 2
    if args.list:
        for mutant in mutants:
            print(f"{mutant.id:36} {mutant.file}: {mutant.breaks}")
        return 0
    start = perf_counter()
    try:
        with _alone():
            outcomes = _run(mutants, Trials(WORK / "results"), args.jobs, again=args.again)
    except KeyboardInterrupt:
        print("mutants: stopped; what was found is kept", file=sys.stderr)
        return 130
    except CommandError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    _tell(mutants, outcomes, perf_counter() - start, as_json=args.json)
    states = Counter(outcome.state for outcome in outcomes.values())
    return 1 if states["survived"] else 2 if states["broken"] else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at a time, by default a core each"
    )
    parser.add_argument(
        "--only", metavar="PATTERN", help="those whose name or file has this, or matches it with * and ?"
    )
    parser.add_argument("--again", action="store_true", help="also those of which an earlier run knows the end")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    parser.add_argument("--json", action="store_true", help="tell the results as JSON")
    args = parser.parse_args(arguments)
    if args.jobs < 1:
        parser.error(f"--jobs: received {args.jobs}, expected 1 or more")
    return args


def _matches(mutant: Mutant, pattern: str | None) -> bool:
    return pattern is None or any(fnmatch.fnmatch(name, f"*{pattern}*") for name in (mutant.id, mutant.file))


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that allows one run in a checkout. SIGTERM ends the run as Ctrl-C does."""
    WORK.mkdir(parents=True, exist_ok=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CommandError("another run tries mutants of this checkout: wait for it") from error
        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _run(mutants: Sequence[Mutant], trials: Trials, jobs: int, *, again: bool) -> dict[str, Outcome]:
    """Try all mutants without a known result. Only one lane compiles C++: each such lane compiles all of it once."""
    outcomes = {} if again else {each.id: known for each in mutants if (known := trials.known(each))}
    left = [each for each in mutants if each.id not in outcomes]
    native, python = ([each for each in left if each.is_native is wanted] for wanted in (True, False))
    n_python = min(len(python), max(1, jobs - bool(native)))
    cores = max(1, jobs // max(1, n_python + bool(native)))
    lanes = [(Lane(WORK / "native", cores, is_native=True), native)] if native else []
    lanes += [(Lane(WORK / f"lane-{number}", cores), python) for number in range(n_python)]
    queues = {id(each): _queue(each) for each in (native, python)}
    threads = [
        Thread(target=_work, args=(lane, queues[id(own)], trials, outcomes, len(mutants))) for lane, own in lanes
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    finally:
        if any(thread.is_alive() for thread in threads):
            stop_all()
        for thread in threads:
            thread.join()
        for lane, _ in lanes:
            shutil.rmtree(f"{lane.folder}-tmp", ignore_errors=True)
            lane.remove()
    return outcomes


def _queue(mutants: Sequence[Mutant]) -> "SimpleQueue[Mutant]":
    queue = SimpleQueue[Mutant]()
    for mutant in mutants:
        queue.put(mutant)
    return queue


def _work(lane: Lane, queue: "SimpleQueue[Mutant]", trials: Trials, outcomes: dict[str, Outcome], count: int) -> None:
    try:
        lane.prepare()
        failure = ""
    except KeyboardInterrupt:
        return
    except (CommandError, OSError) as error:
        failure = str(error)
    while not STOPPED.is_set():
        try:
            mutant = queue.get_nowait()
        except Empty:
            return
        try:
            outcome = Outcome("broken", failure) if failure else trials.judge(mutant, lane)
        except KeyboardInterrupt:
            return
        outcomes[mutant.id] = outcome
        print(
            f"[{len(outcomes)}/{count}] {mutant.id}: {outcome.state} ({outcome.seconds:.0f} s) {outcome.why}",
            file=sys.stderr,
        )


def _tell(mutants: Sequence[Mutant], outcomes: dict[str, Outcome], seconds: float, *, as_json: bool) -> None:
    states = Counter(outcome.state for outcome in outcomes.values())
    if as_json:
        rows = [asdict(each) | asdict(outcomes[each.id]) for each in mutants]
        print(json.dumps({"counts": states, "seconds": round(seconds, 1), "mutants": rows}, indent=1))
        return
    for mutant in mutants:
        outcome = outcomes[mutant.id]
        if outcome.state != "killed":
            print(f"{outcome.state}: {mutant.id} ({mutant.file}): {outcome.why}")
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(f"{len(mutants)} mutants in {seconds:.0f} s: {counted}")


if __name__ == "__main__":
    sys.exit(main())
