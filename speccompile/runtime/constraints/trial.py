"""Trials of constraints in child processes: this process compiles those that compiled there within limits."""

import socket
import threading
import weakref
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from speccompile.errors import EngineError, UsageError
from speccompile.machine.forker_process import ForkerProcess, limit_of, split_answer, task_head
from speccompile.runtime.constraints.limits import SIMPLER, CompileLimits, nested_too_deeply

_CHILD = "speccompile.runtime.constraints.child"
_PATIENCE = 60.0
"""Seconds that a trial may take on a machine that is busy."""
_REMEMBERED = 256
"""Constraints whose results are remembered: of thousands of requests, many have the same."""


class Trials:
    """Trials of constraints for one tokenizer. Any thread may use them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Start the process that forks a child for each trial. settings: see `child.main`. Raise EngineError."""
        try:
            self._process = ForkerProcess(_CHILD, settings)
        except OSError as error:
            raise _unavailable(error.strerror) from error
        self._results, self._lock = OrderedDict[bytes, UsageError | None](), threading.Lock()
        self.close = weakref.finalize(self, self._process.close)

    def check(self, kind: str, text: str, limits: CompileLimits) -> None:
        """Compile a constraint in a child. text: as JSON. Raise UsageError if it is invalid or reaches a limit, and
        EngineError if there is no child."""
        key = blake2b(f"{kind} {limits} {text}".encode(), digest_size=16).digest()
        with self._lock:
            is_known, refused = key in self._results, self._results.get(key)
        if not is_known:
            refused = self._try(kind, text, limits)
            with self._lock:
                self._results[key] = refused
                if len(self._results) > _REMEMBERED:
                    self._results.popitem(last=False)
        if refused is not None:
            raise UsageError(str(refused), hint=refused.hint)

    def _try(self, kind: str, text: str, limits: CompileLimits) -> UsageError | None:
        try:
            error, _ = split_answer(self._run(task_head(kind, limits.seconds, limits.memory_mib, 0) + text.encode()))
        except OSError as failure:
            raise _unavailable(failure.strerror or "it takes too long on this busy machine") from failure
        if error is None:
            return None
        if "signal" not in error:
            return UsageError(error["message"], hint=error["hint"])
        if not error["signal"]:
            raise _unavailable("its process has ended")
        limit = limit_of(error["signal"])
        if limit == "depth":
            return nested_too_deeply(kind)
        taken = (
            f"{limits.seconds:g} seconds of a processor" if limit == "seconds" else f"{limits.memory_mib} MiB of memory"
        )
        name = "seconds" if limit == "seconds" else "memory_mib"
        return UsageError(f"constraint {kind}: compiling it takes more than {taken}: the limit {name}", hint=SIMPLER)

    def _run(self, data: bytes) -> bytes:
        """Return a child's answer. Raise OSError."""
        with self._process.begin() as task:  # its end ends the child, if it still works
            task.settimeout(_PATIENCE)
            with suppress(ConnectionError):  # the child has ended early: its answer, if it has one, says why
                task.sendall(data)
                task.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: task.recv(1 << 16), b""))


def _unavailable(why: str | None) -> EngineError:
    return EngineError(
        f"the constraint cannot be tried in a process of its own: {why}", hint="free some memory, and try again"
    )
