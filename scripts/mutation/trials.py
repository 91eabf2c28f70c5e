"""Trying mutants: their tests first without the mistake, then with it; what was found is kept."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from time import perf_counter

from scripts.mutation.entries import EntryError, Mutant
from scripts.mutation.lanes import CommandError, Lane, run

SLOWER, LEAST = 10.0, 120.0
"""With a mistake tests may take so many times as long as without it, and so many seconds at least; then they have
noticed that something never ends."""

_PASSED = re.compile(r"\b(\d+) passed")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """state: killed, survived, skipped (its tests do not run on this machine) or broken (they fail without the mistake,
    or it does not apply, or not compile). why: the test that noticed, or what is wrong. seconds: with the mistake."""

    state: str
    why: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Tested:
    """A run of tests. state: passed, failed, skipped or endless."""

    state: str
    why: str
    seconds: float


def run_tests(lane: Lane, tests: Sequence[str], limit: float | None = None) -> Tested:
    """Run tests in a lane until the first one fails, for at most `limit` seconds."""
    # Its own folder, which goes with the lane. -rfE names what failed, whatever the configuration says of quiet.
    more = ["-x", "-rfE", "--tb=line", "-p", "no:cacheprovider", f"--basetemp={lane.folder}-tmp"]
    start = perf_counter()
    done = run([sys.executable, "-m", "pytest", *more, *tests], lane.folder, lane.environment(), limit)
    seconds = perf_counter() - start
    if done.code is None:
        return Tested("endless", f"no end within {limit:.0f} s", seconds)
    if done.code == 0:
        return Tested("passed" if _PASSED.search(done.said) else "skipped", "", seconds)
    failed = _FAILED.findall(done.said)
    return Tested("failed", failed[0] if failed else "\n".join(done.said.strip().splitlines()[-3:]), seconds)


class Trials:
    """All that is known of mutants by now, in a file of each in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._baselines: dict[tuple[bool, tuple[str, ...]], Tested] = {}
        self._locks: dict[tuple[bool, tuple[str, ...]], Lock] = {}
        self._guard = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def known(self, mutant: Mutant) -> Outcome | None:
        """Return what an earlier run has found of the same mistake in the same file with the same tests."""
        try:
            kept = json.loads((self._folder / f"{mutant.id}.json").read_text())
            return Outcome(**kept["outcome"]) if kept["digest"] == mutant.digest() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def judge(self, mutant: Mutant, lane: Lane) -> Outcome:
        """Try a mutant in a lane, which is as it was afterwards."""
        try:
            digest, text = mutant.digest(lane.folder), (lane.folder / mutant.file).read_text()
            outcome = self._try(mutant, lane, text)
        except (EntryError, CommandError, OSError) as error:
            return Outcome("broken", str(error))
        if outcome.state in ("killed", "survived"):
            record = json.dumps({"digest": digest, "outcome": asdict(outcome)}, indent=1)
            part = self._folder / f"{mutant.id}.part"
            part.write_text(record + "\n")
            part.replace(self._folder / f"{mutant.id}.json")
        return outcome

    def _try(self, mutant: Mutant, lane: Lane, text: str) -> Outcome:
        before = self._baseline(mutant, lane)
        if before.state != "passed":
            state = "skipped" if before.state == "skipped" else "broken"
            return Outcome(state, f"without the mistake its tests end so: {before.state} {before.why}")
        try:
            lane.put(mutant)
            if mutant.is_native:
                lane.compile()
            found = run_tests(lane, mutant.tests, max(LEAST, SLOWER * before.seconds))
        finally:
            lane.restore(mutant, text)
        if found.state in ("failed", "endless"):
            return Outcome("killed", found.why, found.seconds)
        return Outcome("survived", mutant.breaks, found.seconds)

    def _baseline(self, mutant: Mutant, lane: Lane) -> Tested:
        """Run the tests without the mistake, once for all mutants that have the same."""
        key = (lane.is_native, mutant.tests)
        with self._guard:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            if key not in self._baselines:
                if mutant.is_native:
                    lane.compile()
                self._baselines[key] = run_tests(lane, mutant.tests)
            return self._baselines[key]
