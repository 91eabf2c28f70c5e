"""Measure a device's profile: memory by footprint, linear layers by format, footprint and rows, attention, nodes."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from math import log2
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile import __version__, native
from speccompile.errors import EngineError
from speccompile.machine.system import available_cores, physical_memory, processor
from speccompile.measure.bench.roofline import read_bandwidth
from speccompile.measure.profile import graphs
from speccompile.measure.profile.file import Profile
from speccompile.progress import log_step
from speccompile.runtime.devices.sessions import open_or_raise, session_options

ROWS = (1, 2, 3, 5, 8, 16)
"""Rows of the timed products: tokens of a window."""

FOOTPRINTS = (1, 8, 64, 256)
"""Bytes of weights that a run reads, in MiB: from a core's own cache to what few caches hold."""

CONTEXT = 512
"""Committed tokens of the timed attention."""

SECONDS, RUNS = 0.06, (5, 200)
"""Time for one figure, and the fewest and the most runs of it."""

_NODES, _NORM_WIDTH, _ATTENDS, _LOGITS = 64, 64, 8, 1 << 16
_MIB = 1 << 20

Feeds = Mapping[str, NDArray[Any]]


def measure_profile(threads: int | None = None) -> Profile:
    """Measure this machine: some 15 seconds, and 0.8 GB of memory, or less where the machine has less than 8 GB.

    threads: by default one a core that this process may use. Raise EngineError without the kernels' library.
    """
    if (absence := native.absence()) is not None:
        raise EngineError(f"a profile times the project's own kernels, but {absence.problem}", hint=absence.hint)
    threads = threads or available_cores()
    footprints = [each for each in FOOTPRINTS if each * _MIB <= physical_memory() // 32]
    with log_step("profile: memory"):
        bandwidth = [read_bandwidth(threads, each * _MIB) / 1e9 for each in footprints]
    with log_step("profile: nodes and attention"):
        run, node = _nodes(threads)
        attend = [_attend(threads, rows, run, node) for rows in ROWS]
        argmax = _seconds(threads, graphs.argmax_graph(_LOGITS), _ones("x", (1, 1, _LOGITS))) - run - node
    linear = {}
    for precision in graphs.FORMATS:
        with log_step(f"profile: products in {precision}"):
            linear[precision] = [_linear(precision, threads, each, run) for each in footprints]
    found = processor()
    return Profile(
        processor=found["name"] or found["architecture"],
        architecture=found["architecture"],
        kernels=native.kernels(),
        threads=threads,
        memory_bytes=physical_memory(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        versions={"speccompile": __version__, "onnxruntime": ort.__version__},
        rows=ROWS,
        footprints=tuple(each * _MIB for each in footprints),
        bandwidth=tuple(bandwidth),
        run_seconds=run,
        node_seconds=node,
        linear={name: tuple(map(tuple, rows)) for name, rows in linear.items()},
        attend=tuple(attend),
        argmax=max(argmax, 0.0) / _LOGITS * 1e6,
    )


def _nodes(threads: int) -> tuple[float, float]:
    """Return the seconds of a run and of a node, from chains of one and of many."""
    one, many = (
        _seconds(threads, graphs.norm_chain(count, _NORM_WIDTH), _ones("x", (1, 1, _NORM_WIDTH)))
        for count in (1, 1 + _NODES)
    )
    node = max(many - one, 0.0) / _NODES
    return max(one - node, 0.0), node


def _attend(threads: int, rows: int, run: float, node: float) -> float:
    """Return the seconds of attention for a million (committed tokens x heads x numbers of a head)."""
    generator = np.random.default_rng(0)
    floats = {
        "x": (1, rows, graphs.HEADS * graphs.WIDTH),
        "key_rows": (1, graphs.GROUPS, rows, graphs.WIDTH),
        "value_rows": (1, graphs.GROUPS, rows, graphs.WIDTH),
        "key_cache": (1, graphs.GROUPS, CONTEXT, graphs.WIDTH),
        "value_cache": (1, graphs.GROUPS, CONTEXT, graphs.WIDTH),
        "bias": (1, 1, rows, rows),
    }
    feeds: dict[str, NDArray[Any]] = {
        name: generator.normal(size=shape).astype(np.float32) for name, shape in floats.items()
    }
    feeds["length"] = np.array([CONTEXT])
    feeds["positions"] = np.arange(CONTEXT, CONTEXT + rows)[None]
    seconds = _seconds(threads, graphs.attend_chain(_ATTENDS, rows, CONTEXT), feeds)
    each = max((seconds - run) / _ATTENDS - node, 0.0)
    return each / (CONTEXT * graphs.HEADS * graphs.WIDTH) * 1e6


def _linear(precision: str, threads: int, footprint: int, run: float) -> Iterator[float]:
    """Yield, for every number of rows, the seconds of a million weights in a chain of this footprint in MiB."""
    width = 256 << int(log2(footprint) / 2.9)  # larger models have wider layers: 256, 512, 1024, 1024
    size = width * width
    count = max(1, round(footprint * _MIB / (size * graphs.bytes_per_weight(precision))))
    for rows, model in graphs.linear_chain(precision, width, count, ROWS):
        seconds = _seconds(threads, model, {"x": np.full((1, rows, width), 0.1, np.float32)})
        yield max(seconds - run, 0.0) / (size * count) * 1e6


def _ones(name: str, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    return {name: np.ones(shape, np.float32)}


def _seconds(threads: int, model: bytes, feeds: Feeds) -> float:
    """Return the median seconds of a run of a model whose buffers are bound once, as those of a bundle are."""
    options = session_options(threads)
    session = open_or_raise(
        "a graph of the profile", lambda: ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    )
    binding = session.io_binding()
    for name, values in feeds.items():
        binding.bind_cpu_input(name, values)
    (output,) = session.get_outputs()
    dtype = np.int64 if output.type == "tensor(int64)" else np.float32
    result = np.zeros(output.shape, dtype)
    binding.bind_ortvalue_output(output.name, ort.OrtValue.ortvalue_from_numpy(result))
    return _median_seconds(lambda: session.run_with_iobinding(binding))


def _median_seconds(run: Callable[[], object]) -> float:
    least, most = RUNS
    run()
    times, end = list[float](), perf_counter() + SECONDS
    while len(times) < least or (perf_counter() < end and len(times) < most):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)
