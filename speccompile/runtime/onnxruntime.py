"""ONNX Runtime on a CPU: IOBinding over preallocated buffers, caches updated in place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import Graph, Tensor
from speccompile.errors import EngineError
from speccompile.runtime.engine import Array, Run, empty


class OnnxRuntimeEngine:
    """Sessions for the graphs of one engine entry. Implements `speccompile.runtime.engine.Engine`."""

    def __init__(self, folder: Path, entry: EngineEntry, graphs: Sequence[Graph], threads: int | None = None) -> None:
        """threads: intra-op threads; None leaves the choice to ONNX Runtime (one a physical core)."""
        if entry.provider != "cpu":
            raise EngineError(
                f"engine {entry.name!r} wants provider {entry.provider!r}; this runtime has 'cpu'",
                hint="choose another engine of the bundle with --engine",
            )
        options = ort.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        # The graphs of a round take turns, each with its own threads. Those of the one that just ran would spin on the
        # cores that the next one needs (measured on two cores, 16 M target, 2 M drafter: 1.7 times the round).
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.graphs = {graph.name: graph for graph in graphs}
        self._sessions = {name: _session(folder / file, options) for name, file in entry.files.items()}
        self._arrays: dict[tuple[str, tuple[int, ...]], Array] = {}
        self._values: dict[tuple[str, tuple[int, ...]], Any] = {}

    def array(self, buffer: str, shape: tuple[int, ...]) -> Array:
        if (buffer, shape) not in self._arrays:
            dtype = next(t.dtype for g in self.graphs.values() for t in (*g.inputs, *g.outputs) if t.buffer == buffer)
            self._arrays[buffer, shape] = empty(shape, dtype)
            # An OrtValue made from an array shares its memory; the array must outlive it.
            self._values[buffer, shape] = ort.OrtValue.ortvalue_from_numpy(self._arrays[buffer, shape])
        return self._arrays[buffer, shape]

    def _value(self, tensor: Tensor, widths: Mapping[str, int]) -> Any:
        shape = tensor.concrete_shape(dict(widths))
        array = self.array(tensor.buffer, shape)
        if tensor.role == "index":
            array[:] = range(len(array))
        return self._values[tensor.buffer, shape]

    def bind(self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = ()) -> Run:
        session, tensors = self._sessions[graph], self.graphs[graph]
        binding = session.io_binding()
        for tensor in tensors.inputs:
            binding.bind_ortvalue_input(tensor.name, self._value(tensor, widths))
        for tensor in tensors.outputs:
            if tensor.role != "optional" or tensor.name in optional:
                binding.bind_ortvalue_output(tensor.name, self._value(tensor, widths))
        return lambda: session.run_with_iobinding(binding)

    def has(self, graph: str) -> bool:
        return graph in self._sessions

    def address(self, buffer: str) -> int:
        (value,) = (value for (name, _), value in self._values.items() if name == buffer)
        address: int = value.data_ptr()
        return address


_REFUSALS = (
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
)
_SESSION_ERRORS = tuple(getattr(ort.capi.onnxruntime_pybind11_state, name) for name in _REFUSALS)


def _session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (*_SESSION_ERRORS, RuntimeError, ValueError) as error:
        raise EngineError(
            f"ONNX Runtime {ort.__version__} does not take {path.name}: {str(error).splitlines()[0]}",
            hint="`speccompile inspect` shows the version that the bundle was built with",
        ) from error
