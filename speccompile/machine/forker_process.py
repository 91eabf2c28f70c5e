"""A forking process (`forker`) as the process that asks sees it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any


class ForkerProcess:
    """Process that forks a child for each task. Any thread may use it."""

    def __init__(self, module: str, settings: dict[str, Any]) -> None:
        """Start the module, whose main program reads the settings, and `descriptor` with them, as JSON, and calls
        `forker.serve_tasks`. Raise OSError."""
        self._module, self._settings, self._owner = module, settings, os.getpid()
        self._lock, self._closed = threading.Lock(), False
        self._start()

    def _start(self) -> None:
        self._server, theirs = socket.socketpair()
        settings = json.dumps(self._settings | {"descriptor": theirs.fileno()})
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 -- this program itself
                [sys.executable, "-P", "-m", self._module, settings], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=_environment(),
                start_new_session=True,  # a terminal's Ctrl-C is for this process, which ends it
            )  # fmt: skip

    def is_ready(self) -> bool:
        """Wait until tasks can begin. Return False if the process has ended instead."""
        return bool(self._server.recv(16))

    def begin(self) -> socket.socket:
        """Return this end of a new task's socket; closing it ends the child. Start the process again if it has died.
        Raise OSError if it is closed, or cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(theirs)
            except OSError:
                ours.close()
                raise
        return ours

    def _send(self, task: socket.socket) -> None:
        try:
            socket.send_fds(self._server, [b"t"], [task.fileno()])
        except OSError:
            with self._lock:
                if self._closed:
                    raise
                self._end()
                self._start()
            socket.send_fds(self._server, [b"t"], [task.fileno()])

    def _end(self) -> None:
        self._server.close()
        if self._owner == os.getpid():  # not in a fork of this process, whose child it is not
            self.process.kill()
            self.process.wait()

    def close(self) -> bool:
        """End the process and its children. Return whether this was the first call."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
        self._end()
        return True


def task_head(task: str, seconds: float, memory_mib: int, niceness: int) -> bytes:
    """Return the first line of a task. seconds: of a processor; memory_mib: MiB beyond what the forking process has."""
    head = {"task": task, "seconds": seconds, "memory_mib": memory_mib, "niceness": niceness}
    return json.dumps(head).encode() + b"\n"


def split_answer(answer: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """Return the error of an answer, None if there is none, and the result. {"signal": 0}: the forking process has
    ended."""
    head, _, result = answer.partition(b"\n")
    return json.loads(head or b'{"signal": 0}'), result


def limit_of(number: int) -> str:
    """Return the limit that a child had reached when a signal ended it: seconds, depth or memory. Without memory,
    libraries end in more than one way."""
    if number == signal.SIGPROF:
        return "seconds"
    return "depth" if number in (signal.SIGSEGV, signal.SIGBUS) else "memory"


def _environment() -> dict[str, str]:
    """Return this process's variables, without threads in libraries: a process with several must not fork."""
    return os.environ | {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
