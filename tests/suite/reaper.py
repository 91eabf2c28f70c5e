"""Ends what a run of tests leaves: started by it, outlives it, and loads nothing but Python itself.

Its standard input ends when the run does, however that ended. Every process that the run started has RUN=<its name> in
the environment with which it began: those that are left are killed, and named on standard output. Where the run did not
say that it came to its end, its folder goes as well.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

RUN = "SPECCOMPILE_TEST_RUN"
GRACE = 3.0
"""Seconds for processes that end by themselves, as workers do that have lost their controller."""


def left(run: str) -> Iterator[tuple[int, str]]:
    """Return processes of a run, and what they are called with."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) == os.getpid() or f"{RUN}={run}".encode() not in (
                (folder / "environ").read_bytes().split(b"\0")
            ):
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(folder.name), command.strip()
        except OSError:  # another user's, or gone meanwhile
            continue


def main(run: str, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    came_to_its_end = sys.stdin.buffer.read() == b"end"
    until = time.monotonic() + (0.5 if came_to_its_end else GRACE)
    while time.monotonic() < until and any(left(run)):
        time.sleep(0.05)
    killed = []
    while found := list(left(run)):  # again, for those that were being started
        for process, command in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(command[:160])
        time.sleep(0.05)
    if not came_to_its_end:
        shutil.rmtree(folder, ignore_errors=True)
        for link in Path(folder).parent.glob("*-current"):  # pytest's, to the last folder
            if not link.exists():
                link.unlink(missing_ok=True)
    try:
        print(*dict.fromkeys(killed), sep="\n", end="", flush=True)
    except BrokenPipeError:  # nobody is there to read it
        os.close(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
