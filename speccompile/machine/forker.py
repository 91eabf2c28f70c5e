"""Process that forks a child for each task, and ends a child at its limits.

What a task costs may be known only when it is done, and no thread can be ended. So a process with one thread, which may
therefore fork, has the libraries open; `ForkerProcess` sends it one end of a socket for each task. The child reads a
line of JSON {"task", "seconds", "memory_mib", "niceness"} and the data, and answers a line of JSON, null or the error,
and the result. If the kernel ends the child, the forking process answers {"signal"}.

Everything ends with the process that asks, however that ends: this process when its own socket closes, a child when its
socket does.
"""

import fcntl
import gc
import json
import os
import resource
import selectors
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from speccompile.machine.system import process_sizes

READY = b"ready"
_STACK = 2 * 2**20
"""Bytes of a child's stack, much less than the threads of the process that asks have: a task that is nested so deeply
that a library ends its process ends this one."""

Answer = Callable[[str, bytes], tuple[dict[str, Any] | None, bytes]]
"""A task's name and data -> its error, None if there is none, and its result. It raises MemoryError alone."""


def serve_tasks(descriptor: int, answer: Answer) -> None:
    """Fork a child for each task until the other process closes its end of the socket with this descriptor."""
    server = socket.socket(fileno=descriptor)
    with suppress(BrokenPipeError):  # it has left already
        server.sendall(READY)
    _Forker(server, answer).run()


class _Forker:
    """Fork children, and report which of them the kernel ended."""

    def __init__(self, server: socket.socket, answer: Answer) -> None:
        self._server, self._answer = server, answer
        self._children: dict[int, socket.socket] = {}
        self._address_space = process_sizes().get("VmSize", 0)
        self._woken, self._wake = socket.socketpair()
        for one in (self._woken, self._wake):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the other end is closed."""
        gc.freeze()  # children share the memory of existing objects, and do not search it
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._woken in ready:
                    self._woken.recv(4096)
                    self._reap()
                if self._server in ready:
                    descriptor = self._next_task()
                    if descriptor is None:
                        return
                    self._fork(socket.socket(fileno=descriptor))

    def _next_task(self) -> int | None:
        """Return the descriptor of the next task's socket, None once the other end is closed."""
        try:
            _, descriptors, *_ = socket.recv_fds(self._server, 1, 1)
        except ConnectionResetError:  # closed with READY unread
            return None
        return descriptors[0] if descriptors else None

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
            _work(task, self._answer, self._address_space)
        finally:
            os._exit(0)  # without the cleanup of the forker's objects

    def _reap(self) -> None:
        """Close the sockets of children that have ended, and name the signal of those that the kernel ended."""
        for child in list(self._children):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                task = self._children.pop(child)
                if os.WIFSIGNALED(status):
                    with suppress(OSError):  # who asked has left
                        task.sendall(json.dumps({"signal": os.WTERMSIG(status)}).encode() + b"\n")
                task.close()


def _work(task: socket.socket, answer: Answer, address_space: int) -> None:
    """Do one task, and answer it. address_space: bytes of that of the forking process."""
    received = b"".join(iter(lambda: task.recv(1 << 20), b""))
    head, _, data = received.partition(b"\n")
    given = json.loads(head)
    _limit(resource.RLIMIT_CORE, 0)
    if address_space:
        _limit(resource.RLIMIT_AS, address_space + given["memory_mib"] * 2**20)
    _limit(resource.RLIMIT_STACK, _STACK)
    os.nice(given["niceness"])
    signal.setitimer(signal.ITIMER_PROF, given["seconds"])  # its signal ends this process, also inside a library
    _end_with(task)
    try:
        error, result = answer(given["task"], data)
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)  # as where a library cannot go on without memory
    signal.setitimer(signal.ITIMER_PROF, 0)
    _end_with(task, watches=False)
    task.sendall(json.dumps(error).encode() + b"\n" + result)


def _limit(what: int, most: int) -> None:
    """Lower a limit of this process, which may have a lower one already."""
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(what, (most, most))


def _end_with(task: socket.socket, *, watches: bool = True) -> None:
    """Let the kernel end this process, by SIGIO, when the other end of the socket is closed."""
    flags = fcntl.fcntl(task, fcntl.F_GETFL)
    fcntl.fcntl(task, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(task, fcntl.F_SETFL, flags | os.O_ASYNC if watches else flags & ~os.O_ASYNC)
