"""Measure a device's profile: memory by footprint, linear layers by format, footprint and rows, attention, nodes."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from math import log2
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
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
from speccompile.plan.precisions import OWN_LAYOUTS
from speccompile.progress import log_step
from speccompile.runtime.devices.sessions import open_or_raise, session_options

ROWS = (1, 2, 3, 5, 8, 16)
"""Rows of the timed products: tokens of a window."""

FOOTPRINTS = (1, 8, 64, 256)
"""Bytes of weights that a run reads, in MiB: from a core's own cache to what few caches hold."""

CONTEXT = 512
"""Committed tokens of the timed attention."""

WIDTHS = (256, 512, 1024)
"""Sides of the timed weights, by footprint: larger models have wider layers."""

SECONDS, TURNS = 0.08, (5, 300)
"""Time for one figure, and the fewest and the most turns of it."""

_NODES, _NORM_WIDTH, _ATTENDS, _GATES, _GATED, _LOGITS = 64, 64, 8, 16, 1024, 1 << 16
_MIB = 1 << 20

Feeds = Mapping[str, NDArray[Any]]
Run = Callable[[], object]


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
        gate = _seconds(threads, graphs.gate_chain(_GATES, _GATED), _ones(1, 1, _GATED)) - run - _GATES * node
        argmax = _seconds(threads, graphs.argmax_graph(_LOGITS), _ones(1, 1, _LOGITS)) - run - node
    linear = {}
    for precision in OWN_LAYOUTS:
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
        gate=max(gate, 0.0) / (_GATES * _GATED) * 1e6,
        argmax=max(argmax, 0.0) / _LOGITS * 1e6,
    )


def _nodes(threads: int) -> tuple[float, float]:
    """Return the seconds of a run and of a node, from chains of one and of many."""
    one, many = (
        _seconds(threads, graphs.norm_chain(count, _NORM_WIDTH), _ones(1, 1, _NORM_WIDTH)) for count in (1, 1 + _NODES)
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
        "bias": (1, 1, rows, rows),
    }
    caches = [f"{name}{index}" for index in range(_ATTENDS) for name in ("key", "value")]
    floats |= dict.fromkeys(caches, (1, graphs.GROUPS, CONTEXT, graphs.WIDTH))
    feeds: dict[str, NDArray[Any]] = {
        name: generator.normal(size=shape).astype(np.float32) for name, shape in floats.items()
    }
    feeds["length"] = np.array([CONTEXT])
    feeds["positions"] = np.arange(CONTEXT, CONTEXT + rows)[None]
    seconds = _seconds(threads, graphs.attend_chain(_ATTENDS, rows, CONTEXT), feeds)
    each = max((seconds - run) / _ATTENDS - node, 0.0)
    return each / (CONTEXT * graphs.HEADS * graphs.WIDTH) * 1e6


def _linear(precision: str, threads: int, footprint: int, run: float) -> list[float]:
    """Return the seconds of a million weights in a chain of this footprint in MiB, for every number of rows.

    The rows take turns, so that a busy moment of the machine slows all of them and their ratios stay.
    """
    width = WIDTHS[min(int(log2(footprint)) // 3, len(WIDTHS) - 1)]
    size = width * width
    count = max(1, round(footprint * _MIB / (size * graphs.bytes_per_weight(precision))))
    with TemporaryDirectory(prefix="speccompile-profile-") as folder:
        with (Path(folder) / "weights").open("wb") as file:
            model = graphs.linear_chain(precision, width, count, file)
        session = _open(threads, model, model_external_initializers_file_folder_path=folder)
    runs = [_bound(session, {"x": np.full((1, rows, width), 0.1, np.float32)}, (1, rows, width)) for rows in ROWS]
    return [max(seconds - run, 0.0) / (size * count) * 1e6 for seconds in _median_seconds(runs)]


def _ones(*shape: int) -> dict[str, NDArray[Any]]:
    return {"x": np.ones(shape, np.float32)}


def _seconds(threads: int, model: bytes, feeds: Feeds) -> float:
    """Return the median seconds of a run of a model with fixed shapes."""
    session = _open(threads, model)
    return _median_seconds([_bound(session, feeds, session.get_outputs()[0].shape)])[0]


def _open(threads: int, model: bytes, **settings: str) -> ort.InferenceSession:
    options = session_options(threads, **settings)
    return open_or_raise(
        "a graph of the profile", lambda: ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    )


def _bound(session: ort.InferenceSession, feeds: Feeds, shape: Sequence[int]) -> Run:
    """Return a run whose buffers are bound once, as those of a bundle are. shape: of the only output."""
    binding, (output,) = session.io_binding(), session.get_outputs()
    result = np.zeros(shape, np.int64 if output.type == "tensor(int64)" else np.float32)
    for name, values in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(values))
    binding.bind_ortvalue_output(output.name, ort.OrtValue.ortvalue_from_numpy(result))
    return lambda: session.run_with_iobinding(binding)


def _median_seconds(runs: Sequence[Run]) -> list[float]:
    """Time runs in turns. Each is called twice, and the second time counts: the caches then hold what an equal round
    leaves in them."""
    least, most = TURNS
    times: list[list[float]] = [[] for _ in runs]
    end = perf_counter() + SECONDS * len(runs)
    while len(times[0]) < least or (perf_counter() < end and len(times[0]) < most):
        for run, each in zip(runs, times, strict=True):
            run()
            start = perf_counter()
            run()
            each.append(perf_counter() - start)
    return [median(each[1:]) for each in times]
