"""Connection to a Ray cluster: an existing one, or one on this machine that is started and stopped here."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from speccompile.errors import EngineError
from speccompile.extras import naming_extra

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a busy machine takes longer than Ray expects
}
"""Environment variables of clusters that are started here, unless they are set already."""


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connect to a cluster inside a `with` block; a process that is connected already stays so.

    address: of a cluster, as `ray start --head` prints it, or "auto"; None for $RAY_ADDRESS, else a cluster of this
    machine. Raise MissingPackageError without the package ray, EngineError for a cluster that does not answer.
    """
    with naming_extra("a cluster"):
        import ray
    if ray.is_initialized():
        yield
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    with _own_signals():
        _init(ray, address)
    try:
        yield
    finally:
        ray.shutdown()


def _init(ray: Any, address: str | None) -> None:
    local = address is None and "RAY_ADDRESS" not in os.environ
    try:
        ray.init(address=address, logging_level="warning", **({"include_dashboard": False} if local else {}))
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EngineError(
            f"--address: received {address or os.environ.get('RAY_ADDRESS')}, expected a Ray cluster that answers: "
            f"{error}",
            hint="start one with `ray start --head`, or leave --address out for one on this machine",
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore this process's SIGTERM handler: Ray's own ends the process without any clean-up."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
