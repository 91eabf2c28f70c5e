"""Attempts side by side, each in a process of its own that cannot outlive its limits."""

import multiprocessing
import os
import resource
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scripts.architectures.row import PRECISIONS, Row

# The server imports the heavy libraries once; what it forks for an attempt has them.
_LEAVE = 5
"""Seconds that a process has to end by itself."""
_CONTEXT = multiprocessing.get_context("forkserver")


def sweep(
    model_types: Sequence[str], workers: int, seconds: int, gigabytes: int, precisions: Sequence[str] = PRECISIONS,
    proven: Mapping[str, Row] = MappingProxyType({}),
) -> Iterator[Row]:  # fmt: skip
    """Yield the rows of some types, in the order in which they are done. Raises nothing of what attempts raise.

    proven: rows of types of which windows alone are compared."""
    _CONTEXT.set_forkserver_preload(["scripts.architectures.attempt"])
    with ThreadPoolExecutor(workers) as pool:
        running = [
            pool.submit(_attempt, name, seconds, gigabytes, precisions, proven.get(name)) for name in model_types
        ]
        for each in as_completed(running):
            yield each.result()


def _attempt(model_type: str, seconds: int, gigabytes: int, *look: Any) -> Row:
    here, there = _CONTEXT.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="architecture-") as folder:
        process = _CONTEXT.Process(target=_child, args=(model_type, Path(folder), gigabytes << 30, there, *look))
        process.start()
        there.close()
        try:
            if not here.poll(seconds):
                process.kill()
                return Row(model_type, "", "broken", f"stopped after {seconds} seconds")
            return here.recv()
        except EOFError:
            process.join()
            return Row(model_type, "", "broken", f"its process ended with status {process.exitcode}")
        finally:
            process.join(_LEAVE)  # so that it gives back what it holds
            process.kill()
            process.join()
            here.close()


def _child(model_type: str, folder: Path, memory: int, answer: Connection, *look: Any) -> None:
    """Make a row in the new process. What libraries print is dropped: the row says it."""
    from scripts.architectures.attempt import attempt

    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        answer.send(attempt(model_type, folder, *look))
    except BaseException as error:  # noqa: BLE001  said in the row, which fails the sweep
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        answer.send(Row(model_type, "", "broken", f"{type(error).__name__} at {where}: {error}"))
