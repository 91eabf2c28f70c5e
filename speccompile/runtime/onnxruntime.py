"""ONNX Runtime on a CPU: IOBinding over preallocated buffers, caches updated in place.

A run over some rows of a batch is bound to their lines: a buffer's first axis is its rows, so that they lie together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime as ort

from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import BATCH, Tensor, has_ranges
from speccompile.runtime.engine import Array, Run, buffer_dtypes, check_rows, empty, opened_first, process_memory
from speccompile.runtime.sessions import shared_session
from speccompile.system import available_cores

ONNX_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "bfloat16": 16}
"""dtype -> onnx.TensorProto.DataType."""

PER_RUN = ("link", "optional")
"""Roles of what no run finds as another one left it."""

Shape = tuple[int, ...]


class OnnxRuntimeEngine:
    """Sessions for the graphs of one engine entry. Implements `speccompile.runtime.engine.Engine`."""

    def __init__(
        self,
        folder: Path,
        entry: EngineEntry,
        threads: int | None = None,
        verify: bool = True,
        batch_size: int = 1,
    ) -> None:
        """threads: of a session, by default one for each core that this process may use.

        verify: compare packed weights that are kept on this machine with their hashes. batch_size: rows of the bundle.
        """
        self.threads, self.has_ranges = threads or available_cores(), has_ranges(entry.graphs)
        self._batch = batch_size
        self._folder, self._files, self._verify = folder, entry.files, verify
        self._graphs = {graph.name: graph for graph in entry.graphs}
        self._dtypes = buffer_dtypes(entry.graphs)
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._arrays: dict[tuple[str, Shape], Array] = {}
        self._values: dict[tuple[str, Shape, int], Any] = {}
        """Buffer, shape and first row, 0 for what has no line for each -> what a run over so many rows is bound to."""
        for name in opened_first(self._files):
            self._session(name)

    def _session(self, graph: str) -> ort.InferenceSession:
        if graph not in self._sessions:
            self._sessions[graph] = shared_session(self._folder, self._files[graph], self.threads, verify=self._verify)
        return self._sessions[graph]

    def array(self, buffer: str, shape: Shape) -> Array:
        if (buffer, shape) not in self._arrays:
            self._arrays[buffer, shape] = empty(shape, self._dtypes[buffer])
        return self._arrays[buffer, shape]

    def put(self, buffer: str, values: Array) -> None:
        self.array(buffer, values.shape)[:] = values

    def _lines(self, tensor: Tensor, widths: dict[str, int], rows: range) -> tuple[Array, int]:
        """What a run over these rows reads or writes of a buffer, and the first of its lines."""
        if not tensor.by_row or tensor.role in PER_RUN:
            return self.array(tensor.buffer, tensor.concrete_shape(widths | {BATCH: len(rows)})), 0
        return self.array(tensor.buffer, tensor.concrete_shape(widths))[rows.start : rows.stop], rows.start

    def _value(self, tensor: Tensor, widths: dict[str, int], rows: range) -> Any:
        if tensor.role == "index":
            whole = self.array(tensor.buffer, tensor.concrete_shape(widths))
            whole[:] = range(len(whole))
        array, first = self._lines(tensor, widths, rows)
        key = tensor.buffer, array.shape, first
        if key not in self._values:
            # An OrtValue made from an array shares its memory; the array must outlive it.
            kind = ONNX_TYPES[self._dtypes[tensor.buffer]]
            self._values[key] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)
        return self._values[key]

    def bind(
        self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = (), rows: range | None = None
    ) -> Run:
        sizes = {BATCH: self._batch, **widths}
        rows = check_rows(rows, sizes[BATCH], has_ranges=self.has_ranges)
        session, tensors = self._session(graph), self._graphs[graph]
        binding = session.io_binding()
        for tensor in tensors.inputs:
            binding.bind_ortvalue_input(tensor.name, self._value(tensor, sizes, rows))
        for tensor in tensors.outputs:
            if tensor.role != "optional" or tensor.name in optional:
                binding.bind_ortvalue_output(tensor.name, self._value(tensor, sizes, rows))
        copies = [
            (self._lines(tensor, sizes, rows)[0], self._lines(replace(tensor, buffer=read), sizes, rows)[0])
            for tensor in tensors.outputs
            if (read := tensors.copied.get(tensor.buffer))
        ]

        def run() -> None:
            session.run_with_iobinding(binding)
            for written, read in copies:
                read[:] = written

        return run

    def has(self, graph: str) -> bool:
        return graph in self._files

    def address(self, buffer: str) -> int:
        (array,) = (array for (name, _), array in self._arrays.items() if name == buffer)
        return array.ctypes.data

    def memory(self) -> dict[str, int]:
        return process_memory()
