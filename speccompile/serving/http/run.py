"""Server process: its socket, its signals, and its end."""

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import cast

import uvicorn
from starlette.applications import Starlette

from speccompile.errors import UsageError
from speccompile.progress import LOGGER
from speccompile.serving.http.app import Settings, make_app
from speccompile.serving.http.connection import limited_protocol
from speccompile.serving.http.connection_limits import ConnectionLimits
from speccompile.serving.http.model import ServedModel

_LAST_SECONDS = 1
"""Seconds for connections that are still open when all requests have ended."""
_LAST_WORDS = 0.5
"""Seconds in which clients are told, at a second signal, that their requests were not finished."""
_STACK = 16 * 2**20
"""Bytes of a thread's stack, more than that of the processes that try grammars first. The system's default varies."""


@dataclass(frozen=True)
class ListenAddress:
    """Address on which a server listens: of the machine, or a Unix socket."""

    host: str = "127.0.0.1"
    port: int = 8000
    unix: Path | None = None


def listen(place: ListenAddress) -> tuple[socket.socket, str]:
    """Return a listening socket, and its address as a client writes it. Raise UsageError if it cannot listen."""
    try:
        if place.unix is not None:
            return _listen_unix(place.unix), f"unix:{place.unix}"
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        found = socket.create_server((place.host, place.port), family=family, backlog=2048)
        # Connections inherit it. Else a stream's first tokens would wait until the client's system says, some 40 ms
        # later, that the header has come; asyncio sees to that only where a socket was made with its protocol's number.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        where = place.unix or f"{place.host} port {place.port}"
        reason = getattr(error, "strerror", None) or error  # without its number
        raise UsageError(f"cannot listen on {where}: {reason}", hint="choose another address or port") from error
    host = f"[{place.host}]" if family == socket.AF_INET6 else place.host
    return found, f"http://{host}:{found.getsockname()[1]}"


def _listen_unix(path: Path) -> socket.socket:
    if path.is_socket():
        path.unlink()  # left by a server that ended without removing it
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(str(path))
    found.listen(2048)
    return found


def serve(
    model: ServedModel,
    settings: Settings,
    listening: socket.socket,
    load: Callable[[], None],
    *,
    announce: Callable[[], None] = lambda: None,
    grace: float = 30.0,
    access_log: bool = False,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Then finish the present requests, for at most `grace` seconds; a second signal
    ends at once. `load` opens the model in another thread; its exception ends the server, and is raised. `announce`
    is called once signals are handled, as the first of them may follow what it prints."""
    config = configure(make_app(model, settings), limits or ConnectionLimits(), grace=grace, access_log=access_log)
    threading.stack_size(_STACK)
    failures: list[BaseException] = []

    def open_model() -> None:
        try:
            load()
        except BaseException as error:  # noqa: BLE001 -- raised below, in the main thread
            failures.append(error)
            server.should_exit = True

    def begin() -> None:
        announce()
        threading.Thread(target=open_model, name="speccompile-open", daemon=True).start()

    server = _Server(config, begin, model.close, grace)
    with _logs_on_stderr(access_log=access_log):
        server.run([listening])
    if failures:
        raise failures[0]
    if not server.force_exit:
        model.close(0)


def configure(
    app: Starlette, limits: ConnectionLimits, *, grace: float = 30.0, access_log: bool = False
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application, with limited connections."""
    return uvicorn.Config(
        app, log_config=None, access_log=access_log, server_header=False, lifespan="off",
        timeout_graceful_shutdown=int(grace) + _LAST_SECONDS, timeout_keep_alive=int(limits.idle_seconds),
        http=cast("type[asyncio.Protocol]", limited_protocol(limits)),  # it makes a protocol, as a class does
        ws="none",  # whatever is installed: no endpoint has websockets, and uvicorn would wait for one
    )  # fmt: skip


class _Server(uvicorn.Server):
    """Server that begins once it handles signals, drains at the first one and then ends normally: uvicorn itself would
    raise the signal again. At the second one clients are told that their requests were not finished."""

    def __init__(
        self, config: uvicorn.Config, begin: Callable[[], None], drain: Callable[[float], None], grace: float
    ) -> None:
        """drain: finishes the present requests for at most so many seconds, and ends the others."""
        super().__init__(config)
        self._begin, self._drain, self._grace, self._signals = begin, drain, grace, 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            self._begin()
            yield
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 2:
            self.force_exit = True
        elif self.should_exit:
            threading.Thread(target=self._end, name="speccompile-end", daemon=True).start()
        else:
            super().handle_exit(sig, frame)  # first, because another signal may interrupt the next lines
            threading.Thread(target=self._drain, args=[self._grace], name="speccompile-drain", daemon=True).start()
            LOGGER.info("finishing what was asked; another signal ends at once")

    def _end(self) -> None:
        self._drain(0)
        time.sleep(_LAST_WORDS)  # uvicorn ends earlier, with the last connection
        self.force_exit = True


def _is_no_ended_task(record: logging.LogRecord) -> bool:
    """Return whether a record is none of a task that ended with the event loop, for a client that read no more."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


@contextmanager
def _logs_on_stderr(*, access_log: bool) -> Iterator[None]:
    """Send uvicorn's warnings to stderr inside a `with` block, and with access_log a line for each request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    handler.addFilter(_is_no_ended_task)
    loggers = {"uvicorn.error": logging.WARNING, "uvicorn.access": logging.INFO}
    if not access_log:
        del loggers["uvicorn.access"]
    for name, level in loggers.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name in loggers:
            logging.getLogger(name).removeHandler(handler)
