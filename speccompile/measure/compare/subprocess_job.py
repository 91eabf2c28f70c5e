"""Run jobs in a separate process: its memory is separate, and its crash does not end this one.

The process reads one JSON line per job from its stdin and writes JSON lines: {"event": ..} while a job runs, then
{"result": ..}, {"error": ..} or {"os_error": ..}. Its log messages are events, and its stderr is a file that is read
if it ends without an answer: nothing of it disturbs the terminal.
"""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from speccompile import errors
from speccompile.errors import EngineError, SpeccompileError
from speccompile.machine.dropped_interrupts import dropped_interrupts_sent_again
from speccompile.measure.compare.limit import TimeLimit
from speccompile.progress import LOGGER

Event = Mapping[str, Any]
Watch = Callable[[Event], None]
"""Function that receives the events of a job: {"log": message, "level": number}, or what the job itself tells."""

UNLIMITED = TimeLimit(None)

PATIENCE = 5.0
"""Seconds that an interrupted process has to clean up."""

LAST_LINE = 300
"""Maximum length of the last line of stderr in a message, in characters."""


class Subprocess:
    """Process of one of our modules that calls `serve`. It starts with the first job, imports once, and does job after
    job. Used in a `with` block, whose end ends it."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[bytes] | None = None

    def __enter__(self) -> "Subprocess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: Mapping[str, Any], about: str, watch: Watch | None = None, limit: TimeLimit = UNLIMITED) -> Any:
        """Run a job and return its result. job, result: plain JSON values. about: description of the job, for messages.
        watch: receives its events; by default log messages are logged here. limit: ends the process when it passes.

        Raise the SpeccompileError of the job, its OSError of a full disk, and EngineError if the process ended without
        an answer, or TimeIsUpError if the limit ended it; the next job then starts a new process.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"level": LOGGER.getEffectiveLevel(), "job": job}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already: reading finds no answer
        with _ended_by(limit, process):
            answer = _answer(process.stdout, watch or _log)
        if answer is None:
            error = self._ended(about)
            limit.check()
            raise error
        if "error" in answer:
            raise _error(**answer["error"])
        if "os_error" in answer:
            raise OSError(*answer["os_error"])
        return answer["result"]

    def close(self) -> None:
        """End the process: an interrupted job removes its temporary files."""
        if self._process is not None:
            _stop(self._process)
            for stream in (self._process.stdin, self._process.stdout, self._stderr):
                _close(stream)
        self._process = self._stderr = None

    def _start(self) -> "subprocess.Popen[str]":
        self._stderr = tempfile.TemporaryFile(prefix="speccompile-compare-")  # noqa: SIM115  # `close` closes it
        self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
            # -P: a file of the working directory must not shadow a module.
            [sys.executable, "-P", "-m", self._module],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C reaches only the parent, which then kills the child
        )
        return self._process

    def _ended(self, about: str) -> EngineError:
        """Return the error of a process that ended without an answer, and forget the process."""
        assert self._process is not None
        assert self._stderr is not None
        code = self._process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")[:LAST_LINE]
        self.close()
        return EngineError(
            f"{about}: the process {_ending(code)}, expected an answer{f': {last}' if last else ''}",
            hint="where memory ran out, free some or leave this method out with --methods",
        )


def run_apart(
    module: str, job: Mapping[str, Any], about: str, watch: Watch | None = None, limit: TimeLimit = UNLIMITED
) -> Any:
    """Run one job of a module in a new process, and return its result. See `Subprocess.run`."""
    with Subprocess(module) as process:
        return process.run(job, about, watch, limit)


def serve(act: Callable[[dict[str, Any], Watch], Any]) -> None:
    """Do the jobs of stdin in the new process, and write the events, results and errors. act: receives a job, and the
    function that tells an event."""
    # a shell starts jobs in the background with it ignored, which processes inherit: `_stop` would wait for nothing
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not mix with the answers

    def tell(event: Event) -> None:
        _write(channel, {"event": dict(event)})

    LOGGER.addHandler(_Telling(tell))
    with dropped_interrupts_sent_again():  # else `_stop` waits in vain while torch is imported
        _answer_jobs(act, tell, channel)


def _answer_jobs(act: Callable[[dict[str, Any], Watch], Any], tell: Watch, channel: IO[str]) -> None:
    """Do the jobs of stdin, and write their results and errors to a channel."""
    for line in sys.stdin:
        data = json.loads(line)
        LOGGER.setLevel(data["level"])
        answer: dict[str, Any]
        try:
            answer = {"result": act(data["job"], tell)}
        except SpeccompileError as error:
            answer = {"error": {"kind": type(error).__name__, "message": str(error), "hint": error.hint}}
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            answer = {"os_error": [error.errno, error.strerror, error.filename and str(error.filename)]}
        _write(channel, answer)


class _Telling(logging.Handler):
    """Handler that tells log messages as events."""

    def __init__(self, tell: Watch) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell({"log": record.getMessage(), "level": record.levelno})


def _write(channel: IO[str], data: Mapping[str, Any]) -> None:
    channel.write(json.dumps(data) + "\n")
    channel.flush()


def _answer(lines: IO[str], watch: Watch) -> dict[str, Any] | None:
    """Return the answer of a job, None if the stream ends before; pass events on."""
    for line in lines:
        try:
            data: dict[str, Any] = json.loads(line)
        except ValueError:
            return None  # the process was killed while it wrote
        if "event" not in data:
            return data
        watch(data["event"])
    return None


def _log(event: Event) -> None:
    if "log" in event:
        LOGGER.log(event["level"], "  %s", event["log"])


def _stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()


@contextmanager
def _ended_by(limit: TimeLimit, process: "subprocess.Popen[str]") -> Iterator[None]:
    """End the process if the limit passes inside a `with` block, as an interrupt does."""
    if limit.left is None:
        yield
        return
    timer = threading.Timer(limit.left, _stop, [process])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _close(stream: IO[Any] | None) -> None:
    """Close a stream. A pipe whose reader is gone may still hold a job."""
    try:
        if stream is not None:
            stream.close()
    except BrokenPipeError:
        pass


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _error(kind: str, message: str, hint: str | None) -> SpeccompileError:
    found: type[SpeccompileError] = getattr(errors, kind)
    return found(message, hint=hint)
