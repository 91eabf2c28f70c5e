"""One engine: from the cache, else built in a separate process."""

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from speccompile.bundle import EngineEntry
from speccompile.bundle.delta import SUFFIX, write_patch
from speccompile.compiler.engines import flavour, process
from speccompile.compiler.engines.cache import Cache
from speccompile.compiler.engines.key import make_key
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.settings import Settings
from speccompile.contract import Graph
from speccompile.progress import LOGGER, log_step


def plan_file(source: str, graph: str, engine: str) -> str:
    """Return the path of a graph's engine in a bundle: next to the lowered graph `source` from which it is built."""
    return str(PurePosixPath(source).with_name(f"{graph}.{engine}.engine"))


def check_limits() -> None:
    """Read the limits of builds and cache from the environment. Raise UsageError for a limit that is no number."""
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
    with log_step(f"building the engine of {graph.name} ({settings.describe()})"):
        report = process.build(onnx, graph, settings, output, limits)
    try:
        cache.store(key, output, report)
    except OSError as error:
        _note(cache, error)
    return report


def store_weights_once(entry: EngineEntry, folder: Path) -> EngineEntry:
    """Store the `verify` engine of a built entry as a patch of the fused `step`, and return the entry: both hold all
    weights of the target. If the disk has no space for the patch, both stay unchanged.

    TensorRT-RTX 1.7 offers no alternative. WEIGHT_STREAMING does not change the size of an engine; STRIP_PLAN, REFIT
    and REFIT_IDENTICAL, with which several engines could be filled from one file, fail without a GPU (`graph_jit.cpp:
    CHECK(status == CUDA_SUCCESS)`, cudaError 35); and a profile omits no part of a graph.
    """
    if "step" not in entry.files:
        return entry
    step_file, verify_file = (folder / entry.files[graph] for graph in ("step", "verify"))
    with log_step(f"storing the weights of step and verify once ({entry.name})"):
        try:
            patch = write_patch(verify_file, step_file)
        except OSError as error:
            LOGGER.warning("note: the weights of %s are stored twice: %s", entry.name, error.strerror)
            return entry
    if patch is None:
        return entry
    return replace(entry, files=entry.files | {"verify": f"{entry.files['verify']}{SUFFIX}"})


def _note(cache: Cache, error: OSError) -> None:
    LOGGER.warning("note: the cache of engines in %s cannot be used: %s", cache.folder, error.strerror)
