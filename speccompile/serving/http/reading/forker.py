"""Process that forks a child for each task: `python -m speccompile.serving.http.reading.forker SETTINGS`.

It has one thread, and so may fork; it has the tokenizer open, and so a child begins at once. The server sends it one
end of a socket for each task. The child reads a line of JSON {"task", "seconds", "niceness"} and the body, and answers
a line of JSON, null or the error, and the result. If the kernel ends the child, this process answers {"signal"}.

Everything ends with the server, however that ends: this process when its own socket closes, a child when its socket
does.
"""

import fcntl
import gc
import json
import os
import resource
import selectors
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from speccompile.runtime.text_bundle import TextBundle
from speccompile.serving.http.errors import to_request_error
from speccompile.serving.http.reading.limited_bundle import LimitedBundle, warm_up
from speccompile.serving.http.reading.tasks import Reading

READY = b"ready"
_STACK = 2 * 2**20
"""Bytes of a child's stack, much less than the server's threads have: a grammar that is nested so deeply that a library
ends its process ends this one."""


def main(settings: dict[str, Any]) -> None:
    """Fork children until the server closes its end. settings: descriptor, folder, name, memory_mib, grammar_bytes."""
    server = socket.socket(fileno=settings["descriptor"])
    texts = TextBundle.open(Path(settings["folder"]))
    warm_up(texts)
    bundle = LimitedBundle(texts, settings["grammar_bytes"], texts.constraint)
    forker = _Forker(server, Reading(bundle, settings["name"]), settings["memory_mib"])
    server.sendall(READY)
    forker.run()


class _Forker:
    """Forks children, and tells the server which of them the kernel ended."""

    def __init__(self, server: socket.socket, reading: Reading, memory_mib: int) -> None:
        self._server, self._reading = server, reading
        self._children: dict[int, socket.socket] = {}
        self._memory = _address_space() + memory_mib * 2**20
        self._woken, self._wake = socket.socketpair()
        for one in (self._woken, self._wake):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the server closes its end."""
        gc.freeze()  # children share the memory of what is there, and do not search it
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._woken in ready:
                    self._woken.recv(4096)
                    self._reap()
                if self._server in ready:
                    data, descriptors, *_ = socket.recv_fds(self._server, 1, 1)
                    if not data:
                        return
                    self._fork(socket.socket(fileno=descriptors[0]))

    def _fork(self, task: socket.socket) -> None:
        child = os.fork()
        if child:
            self._children[child] = task
            return
        try:
            signal.set_wakeup_fd(-1)
            self._server.close()
            for other in self._children.values():
                other.close()
            _work(task, self._reading, self._memory)
        finally:
            os._exit(0)  # without the cleanup of the forker's objects

    def _reap(self) -> None:
        """Close the sockets of children that have ended, and name the signal of those that the kernel ended."""
        for child in list(self._children):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                task = self._children.pop(child)
                if os.WIFSIGNALED(status):
                    with suppress(OSError):  # the server has left
                        task.sendall(json.dumps({"signal": os.WTERMSIG(status)}).encode() + b"\n")
                task.close()


def _work(task: socket.socket, reading: Reading, memory: int) -> None:
    """Do one task, and answer it. memory: most bytes of this process's address space."""
    received = b"".join(iter(lambda: task.recv(1 << 20), b""))
    head, _, body = received.partition(b"\n")
    given = json.loads(head)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK, _STACK))
    os.nice(given["niceness"])
    signal.setitimer(signal.ITIMER_PROF, given["seconds"])  # its signal ends this process, also inside a library
    _end_with(task)
    try:
        error, result = None, reading.task(given["task"])(body)
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)  # as where a library cannot go on without memory
    except BaseException as failure:  # noqa: BLE001 -- the client must receive any error, also a panic of a library
        refused = to_request_error(failure)
        names = ("status", "kind", "param", "code", "hint", "headers")
        error, result = {"message": str(refused)} | {name: getattr(refused, name) for name in names}, b""
    signal.setitimer(signal.ITIMER_PROF, 0)
    _end_with(task, watches=False)
    task.sendall(json.dumps(error).encode() + b"\n" + result)


def _end_with(task: socket.socket, *, watches: bool = True) -> None:
    """Let the kernel end this process, by SIGIO, when the server closes its end of the socket."""
    flags = fcntl.fcntl(task, fcntl.F_GETFL)
    fcntl.fcntl(task, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(task, fcntl.F_SETFL, flags | os.O_ASYNC if watches else flags & ~os.O_ASYNC)


def _address_space() -> int:
    """Return the bytes of this process's address space; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
