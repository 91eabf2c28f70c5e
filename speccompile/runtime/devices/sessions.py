"""Sessions of ONNX Runtime: their options and errors, and on a CPU one shared session per graph."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import onnxruntime as ort

from speccompile import native
from speccompile.errors import EngineError
from speccompile.machine.system import trim_heap
from speccompile.progress import LOGGER
from speccompile.runtime.devices.prepacked import ROOT, open_with_prepacked, weights_of

AS_WRITTEN = ["ReluQuantRewrite"]
"""Disabled optimizers: they drop a Relu before a quantization, even one to signed numbers."""

_OPEN: WeakValueDictionary[tuple[object, ...], ort.InferenceSession] = WeakValueDictionary()
_OPENING = threading.Lock()


def shared_session(folder: Path, file: str, threads: int, *, verify: bool = True) -> ort.InferenceSession:
    """Return the session of a graph of the bundle in `folder`. While it is in use, equal files and threads share one
    session.

    A session has no state and serves concurrent runs. verify: as for `open_with_prepacked`. Raise EngineError when ONNX
    Runtime refuses the graph.
    """
    graph = folder / file
    with _OPENING:
        # A rewritten file is a new one, even with the same hashes in its bundle.
        key = (threads, *map(_identity, [graph, *weights_of(graph)])) if graph.is_file() else (graph,)
        session = _OPEN.get(key)
        if session is None:
            session = _OPEN[key] = _open(folder, file, threads, verify)
    return session


def _identity(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _open(folder: Path, file: str, threads: int, verify: bool) -> ort.InferenceSession:
    def save(graph: Path, output: Path) -> None:
        settings = {
            "optimized_model_external_initializers_file_name": f"{output.name}.weights",
            "optimized_model_external_initializers_min_size_in_bytes": "1024",
            "save_external_prepacked_constant_initializers": "1",
        }
        options = session_options(threads, **settings)
        options.optimized_model_filepath = str(output)
        options.log_severity_level = 3  # it would warn that the written graph is for this machine only
        with as_text(graph) as path:
            _on_cpu(graph.name, path, options)

    def open_serialized(model: bytes) -> ort.InferenceSession:
        return _on_cpu(file, model, session_options(threads, model_external_initializers_file_folder_path=str(ROOT)))

    if not (calls_kernels := _calls_kernels(folder / file)):
        mapped = open_with_prepacked(folder, file, save, open_serialized, onnxruntime=ort.__version__, verify=verify)
        if mapped is not None:
            return mapped
    # The kernels have threads of their own. Other nodes are small: a thread that spins for them costs more than it
    # gives.
    settings = {"intra_op.allow_spinning": "0"} if calls_kernels and native.library() else {}
    with as_text(folder / file) as path:
        session = _on_cpu(Path(file).name, path, session_options(threads, **settings))
    if not calls_kernels:
        return session
    # The weights lie in their file as the kernels read them, and are mapped as they are.
    if (absence := native.absence()) is not None:  # ONNX Runtime has repacked them
        if not absence.wanted:
            _note(absence)
        trim_heap()
    return session


@functools.cache  # once per process: pip hides the output of a build
def _note(absence: native.Absence) -> None:
    LOGGER.warning(
        "note: the kernels for this processor are not in use: %s. ONNX Runtime's own run instead, "
        "slower: `speccompile doctor` says by how much\nhint: %s",
        absence.problem, absence.hint,
    )  # fmt: skip


def _calls_kernels(graph: Path) -> bool:
    return graph.is_file() and native.DOMAIN.encode() in graph.read_bytes()


@contextmanager
def as_text(path: Path) -> Iterator[str]:
    """Yield a file's path as ONNX Runtime takes it, in Unicode: a path in another encoding leads over a descriptor
    of its folder. Raise EngineError where the system has no such paths."""
    text = str(path)
    if _is_unicode(text):
        yield text
        return
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        found = Path(f"/proc/self/fd/{descriptor}") / path.name
        if not found.exists() or not _is_unicode(path.name):
            raise EngineError(
                f"{path}: ONNX Runtime takes no path that is not Unicode", hint="give the folder another name"
            )
        yield str(found)
    finally:
        os.close(descriptor)


def _is_unicode(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text


def _on_cpu(name: str, model: str | bytes, options: ort.SessionOptions) -> ort.InferenceSession:
    providers = ["CPUExecutionProvider"]
    return open_or_raise(
        name, lambda: ort.InferenceSession(model, options, providers=providers, disabled_optimizers=AS_WRITTEN)
    )


def session_options(threads: int, **entries: str) -> ort.SessionOptions:
    """Return the options of every session. entries: further settings of an ONNX Runtime session.

    threads: set explicitly, because ONNX Runtime otherwise starts one for each core of the machine and binds it there,
    ignoring the process's affinity mask and control groups.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    for name, value in entries.items():
        options.add_session_config_entry(f"session.{name}", value)
    # The graphs of a round take turns, each with its own threads. Those of the one that just ran would spin on the
    # cores that the next one needs (measured on two cores, 16 M target, 2 M drafter: 1.7 times the round).
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Quantized graphs run as they are written: otherwise activations are quantized that the graph leaves alone.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.add_session_config_entry(native.THREADS_ENTRY, str(threads))
    native.register(options)
    return options


_REFUSALS = (
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
)
ERRORS = (
    *(getattr(ort.capi.onnxruntime_pybind11_state, name) for name in _REFUSALS),
    RuntimeError,
    ValueError,
)
"""Exceptions of ONNX Runtime."""


def open_or_raise(file: str, open_session: Callable[[], ort.InferenceSession]) -> ort.InferenceSession:
    """Return the session; raise EngineError when ONNX Runtime refuses the graph in `file`."""
    try:
        return open_session()
    except ERRORS as error:
        raise EngineError(
            f"ONNX Runtime {ort.__version__} does not take {file}: {first_line(error)}",
            hint="`speccompile inspect` shows the version that the bundle was built with",
        ) from error


def engine_error(what: str, error: Exception) -> EngineError:
    """Return the error, `what` and ONNX Runtime's reason, for one of ONNX Runtime's own."""
    return EngineError(f"{what}: {first_line(error)}", hint="build the bundle again with this speccompile")


def first_line(error: Exception) -> str:
    """Return the first line of ONNX Runtime's message; the rest repeats it."""
    return str(error).partition("\n")[0]
