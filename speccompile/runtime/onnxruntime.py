"""ONNX Runtime on a CPU: IOBinding over preallocated buffers, caches updated in place."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import Tensor
from speccompile.errors import EngineError
from speccompile.runtime.engine import Array, Run, buffer_dtypes, empty, opened_first

ONNX_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "bfloat16": 16}
"""dtype -> onnx.TensorProto.DataType."""

AS_WRITTEN = ["ReluQuantRewrite"]
"""Optimizers that drop a Relu in front of a quantization, even one to signed numbers."""


class OnnxRuntimeEngine:
    """Sessions for the graphs of one engine entry. Implements `speccompile.runtime.engine.Engine`."""

    def __init__(self, folder: Path, entry: EngineEntry, threads: int | None = None) -> None:
        """threads: intra-op threads; None leaves the choice to ONNX Runtime (one a physical core)."""
        self._options = session_options(threads)
        self._files = {name: folder / file for name, file in entry.files.items()}
        self._graphs = {graph.name: graph for graph in entry.graphs}
        self._dtypes = buffer_dtypes(entry.graphs)
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._arrays: dict[tuple[str, tuple[int, ...]], Array] = {}
        self._values: dict[tuple[str, tuple[int, ...]], Any] = {}
        for name in opened_first(self._files):
            self._session(name)

    def _session(self, graph: str) -> ort.InferenceSession:
        if graph not in self._sessions:
            path = self._files[graph]
            providers = ["CPUExecutionProvider"]
            self._sessions[graph] = refusable(
                path.name,
                lambda: ort.InferenceSession(
                    str(path), self._options, providers=providers, disabled_optimizers=AS_WRITTEN
                ),
            )
        return self._sessions[graph]

    def array(self, buffer: str, shape: tuple[int, ...]) -> Array:
        if (buffer, shape) not in self._arrays:
            dtype = self._dtypes[buffer]
            array = self._arrays[buffer, shape] = empty(shape, dtype)
            # An OrtValue made from an array shares its memory; the array must outlive it.
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, ONNX_TYPES[dtype])
            self._values[buffer, shape] = value
        return self._arrays[buffer, shape]

    def _value(self, tensor: Tensor, widths: Mapping[str, int]) -> Any:
        shape = tensor.concrete_shape(dict(widths))
        array = self.array(tensor.buffer, shape)
        if tensor.role == "index":
            array[:] = range(len(array))
        return self._values[tensor.buffer, shape]

    def bind(self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = ()) -> Run:
        session, tensors = self._session(graph), self._graphs[graph]
        binding = session.io_binding()
        for tensor in tensors.inputs:
            binding.bind_ortvalue_input(tensor.name, self._value(tensor, widths))
        for tensor in tensors.outputs:
            if tensor.role != "optional" or tensor.name in optional:
                binding.bind_ortvalue_output(tensor.name, self._value(tensor, widths))
        return lambda: session.run_with_iobinding(binding)

    def has(self, graph: str) -> bool:
        return graph in self._files

    def address(self, buffer: str) -> int:
        (value,) = (value for (name, _), value in self._values.items() if name == buffer)
        address: int = value.data_ptr()
        return address


def session_options(threads: int | None) -> ort.SessionOptions:
    """Options that every session has. threads: as for `OnnxRuntimeEngine`."""
    options = ort.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    # The graphs of a round take turns, each with its own threads. Those of the one that just ran would spin on the
    # cores that the next one needs (measured on two cores, 16 M target, 2 M drafter: 1.7 times the round).
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Quantized graphs run as they are written: otherwise activations are quantized that the graph leaves alone.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
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
"""What ONNX Runtime raises."""


def refusable(file: str, open_session: Callable[[], ort.InferenceSession]) -> ort.InferenceSession:
    """The session; raises EngineError when ONNX Runtime does not take the graph in `file`."""
    try:
        return open_session()
    except ERRORS as error:
        raise EngineError(
            f"ONNX Runtime {ort.__version__} does not take {file}: {first_line(error)}",
            hint="`speccompile inspect` shows the version that the bundle was built with",
        ) from error


def first_line(error: Exception) -> str:
    """What ONNX Runtime's message begins with; the rest repeats it."""
    return str(error).partition("\n")[0]
