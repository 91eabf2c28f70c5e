"""One engine: from the cache, else built in a process of its own."""

from pathlib import Path, PurePosixPath
from typing import Any

from speccompile.contract import Graph
from speccompile.engines import flavour, process
from speccompile.engines.cache import Cache
from speccompile.engines.key import make_key
from speccompile.engines.limits import Limits
from speccompile.engines.settings import Settings
from speccompile.progress import LOGGER, step


def plan_file(source: str, graph: str, engine: str) -> str:
    """Where the engine of a graph lies in a bundle: beside the lowered graph `source` that it is built from."""
    return str(PurePosixPath(source).with_name(f"{graph}.{engine}.engine"))


def check_limits() -> None:
    """Read the limits of builds and cache from the environment. Raises UsageError for one that is no number."""
    Limits()
    Cache()


def build_or_load(onnx: Path, graph: Graph, settings: Settings, output: Path, *, limits: Limits) -> dict[str, Any]:
    """Put the engine of a lowered graph into `output`, and return the builder's report of it (see `build_engine`).

    Raises EngineError when there is none in the cache and the builder does not finish one; `output` is then untouched.
    A cache that cannot be used is noted, and the engine built.
    """
    trt = flavour.load(settings.backend)
    gpu = flavour.find_gpu() if settings.backend == "tensorrt" else None
    key = make_key(onnx, graph, settings, builder=trt.__version__, gpu=gpu.name if gpu else "")
    cache = Cache()
    try:
        report = cache.load(key, output)
    except OSError as error:
        report = None
        _note(cache, error)
    if report is not None:
        LOGGER.info("the engine of %s (%s) comes from the cache", graph.name, settings.describe())
        return report
    with step(f"building the engine of {graph.name} ({settings.describe()})"):
        report = process.build(onnx, graph, settings, output, limits)
    try:
        cache.store(key, output, report)
    except OSError as error:
        _note(cache, error)
    return report


def _note(cache: Cache, error: OSError) -> None:
    LOGGER.warning("note: the cache of engines in %s cannot be used: %s", cache.folder, error.strerror)
