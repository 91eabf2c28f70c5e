"""ONNX Runtime on a CPU: IOBinding over preallocated buffers, caches updated in place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import Tensor
from speccompile.runtime.engine import Array, Run, buffer_dtypes, empty, opened_first, process_memory
from speccompile.runtime.sessions import shared_session
from speccompile.system import available_cores

ONNX_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "bfloat16": 16}
"""dtype -> onnx.TensorProto.DataType."""


class OnnxRuntimeEngine:
    """Sessions for the graphs of one engine entry. Implements `speccompile.runtime.engine.Engine`."""

    def __init__(self, folder: Path, entry: EngineEntry, threads: int | None = None, verify: bool = True) -> None:
        """threads: of a session, by default one for each core that this process may use.

        verify: compare packed weights that are kept on this machine with their hashes.
        """
        self.threads = threads or available_cores()
        self._folder, self._files, self._verify = folder, entry.files, verify
        self._graphs = {graph.name: graph for graph in entry.graphs}
        self._dtypes = buffer_dtypes(entry.graphs)
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._arrays: dict[tuple[str, tuple[int, ...]], Array] = {}
        self._values: dict[tuple[str, tuple[int, ...]], Any] = {}
        for name in opened_first(self._files):
            self._session(name)

    def _session(self, graph: str) -> ort.InferenceSession:
        if graph not in self._sessions:
            self._sessions[graph] = shared_session(self._folder, self._files[graph], self.threads, verify=self._verify)
        return self._sessions[graph]

    def array(self, buffer: str, shape: tuple[int, ...]) -> Array:
        if (buffer, shape) not in self._arrays:
            dtype = self._dtypes[buffer]
            array = self._arrays[buffer, shape] = empty(shape, dtype)
            # An OrtValue made from an array shares its memory; the array must outlive it.
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, ONNX_TYPES[dtype])
            self._values[buffer, shape] = value
        return self._arrays[buffer, shape]

    def put(self, buffer: str, values: Array) -> None:
        self.array(buffer, values.shape)[:] = values

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
        shapes = {tensor.buffer: tensor.concrete_shape(dict(widths)) for tensor in tensors.outputs}
        copies = [(self.array(own, shapes[own]), self.array(read, shapes[own])) for own, read in tensors.copied.items()]

        def run() -> None:
            session.run_with_iobinding(binding)
            for written, read in copies:
                read[:] = written

        return run

    def has(self, graph: str) -> bool:
        return graph in self._files

    def address(self, buffer: str) -> int:
        (value,) = (value for (name, _), value in self._values.items() if name == buffer)
        address: int = value.data_ptr()
        return address

    def memory(self) -> dict[str, int]:
        return process_memory()
