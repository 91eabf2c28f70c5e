"""Builds of tiny graphs in a process of their own, and the hunt for that process."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from speccompile.bundle import EngineEntry
from speccompile.bundle.manifest import TensorRTBuild
from speccompile.compiler.engines import Limits, process
from speccompile.errors import EngineError
from tests.compile import tiny_graphs
from tests.compile.tiny_graphs import Change, Tiny

LIMITS = Limits(seconds=300, memory=8e9)

T = TypeVar("T")


def build(
    tiny: Tiny, output: Path, *, limits: Limits = LIMITS, precision: str = "float32", capability: str = "8.9"
) -> dict[str, Any]:
    """Build the engine of a tiny graph; the builder's report."""
    return process.build(tiny.onnx, tiny.graph, tiny.settings(capability, precision=precision), output, limits)


def deferred(tiny: Tiny, name: str, source: str, **options: Any) -> EngineEntry:
    """Return the entry of an engine of a tiny graph that is left to the device; `source` is its lowered graph."""
    settings = tiny.settings(**options)
    build = TensorRTBuild("the recipe says so", {"verify": source}, {"verify": settings.to_json()}, {})
    return EngineEntry(
        name, settings.backend, "cuda", {}, settings.precision, (tiny.graph,), settings.compute_capability, build
    )


def refusal(
    folder: Path,
    change: Change | None = None,
    *,
    dtype: str = "float32",
    prepare: Callable[[Tiny], Tiny] = lambda tiny: tiny,
    **options: Any,
) -> EngineError:
    """Build a changed graph in a folder; the EngineError, after nothing was left behind."""
    tiny = prepare(tiny_graphs.write(folder / "graphs", dtype=dtype, change=change))
    (folder / "out").mkdir()
    with pytest.raises(EngineError) as raised:
        build(tiny, folder / "out" / "verify.engine", precision=dtype, **options)
    assert list((folder / "out").iterdir()) == []
    return raised.value


def workers(folder: Path) -> list[int]:
    """Return the builders that work on a job below a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"speccompile.compiler.engines.worker" in words and any(str(folder).encode() in word for word in words):
            found.append(int(each.name))
    return found


def wait_for(condition: Callable[[], T], seconds: float = 60) -> T:
    """Return what the condition gives, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
    return found


def worker_in_the_build(folder: Path) -> int:
    """Return the builder, when it has parsed the graph and opened the engine's file."""
    wait_for(lambda: list(folder.glob(".*/plan")))
    return workers(folder)[0]


@contextmanager
def when_it_builds(folder: Path, number: int) -> Iterator[None]:
    """Send a signal to the builder in the middle of the build."""
    sender = threading.Thread(target=lambda: os.kill(worker_in_the_build(folder), number))
    sender.start()
    yield
    sender.join()
