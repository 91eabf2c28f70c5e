"""ONNX Runtime on a CPU: IOBinding over preallocated buffers, caches updated in place.

A run over a slice of the batch is bound to its lines: the first axis of a buffer counts batch slots, so that the lines
are contiguous.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import BATCH, DTYPES, Tensor, supports_batch_slices
from speccompile.machine.system import available_cores
from speccompile.runtime.devices.engine import (
    SCRATCH,
    Array,
    Run,
    aligned_zeros,
    buffer_dtypes,
    check_rows,
    eager_graphs,
    numpy_dtype,
    process_memory,
    scratch_buffers,
    scratch_size,
)
from speccompile.runtime.devices.graph_signature import check_signature
from speccompile.runtime.devices.sessions import ERRORS, engine_error, shared_session

Shape = tuple[int, ...]


class OnnxRuntimeEngine:
    """Sessions for the graphs of one engine entry. Implements `speccompile.runtime.devices.engine.Engine`."""

    def __init__(
        self,
        folder: Path,
        entry: EngineEntry,
        threads: int | None = None,
        verify: bool = True,
        batch_size: int = 1,
    ) -> None:
        """threads: of a session, by default one for each core that this process may use.

        verify: compare packed weights that are cached on this machine with their hashes. batch_size: of the bundle.
        """
        self.threads, self.supports_batch_slices = threads or available_cores(), supports_batch_slices(entry.graphs)
        self._batch = batch_size
        self._folder, self._files, self._verify = folder, entry.files, verify
        self._graphs = {graph.name: graph for graph in entry.graphs}
        self._dtypes = buffer_dtypes(entry.graphs)
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._arrays: dict[tuple[str, Shape], Array] = {}
        self._scratch: dict[str, dict[int, Array]] = {buffer: {} for buffer in scratch_buffers(entry.graphs)}
        """Buffer -> bytes -> memory that shapes of about this size share."""
        for name in eager_graphs(self._files):
            self._session(name)

    def _session(self, graph: str) -> ort.InferenceSession:
        if graph not in self._sessions:
            session = shared_session(self._folder, self._files[graph], self.threads, verify=self._verify)
            check_signature(session, self._graphs[graph], self._files[graph])
            self._sessions[graph] = session
        return self._sessions[graph]

    def host_view(self, buffer: str, shape: Shape) -> Array:
        if buffer in self._scratch:
            return self._scratch_array(buffer, shape)
        if (buffer, shape) not in self._arrays:
            self._arrays[buffer, shape] = aligned_zeros(shape, self._dtypes[buffer])
        return self._arrays[buffer, shape]

    def _scratch_array(self, buffer: str, shape: Shape) -> Array:
        dtype, shared = numpy_dtype(self._dtypes[buffer]), self._scratch[buffer]
        count = int(np.prod(shape))
        size = scratch_size(count * dtype.itemsize)
        if size not in shared:
            shared[size] = aligned_zeros((size // dtype.itemsize,), self._dtypes[buffer])
        return shared[size][:count].reshape(shape)

    def write_state(self, buffer: str, values: Array) -> None:
        self.host_view(buffer, values.shape)[:] = values

    def _lines(self, tensor: Tensor, widths: dict[str, int], rows: range) -> Array:
        """Return the lines of a buffer that a run over these batch slots reads or writes."""
        if not tensor.is_batched or tensor.role in SCRATCH:
            return self.host_view(tensor.buffer, tensor.concrete_shape(widths | {BATCH: len(rows)}))
        return self.host_view(tensor.buffer, tensor.concrete_shape(widths))[rows.start : rows.stop]

    def _value(self, tensor: Tensor, widths: dict[str, int], rows: range) -> Any:
        """Return the value to bind for a run over these batch slots: it shares the memory of an array, which must
        outlive it."""
        if tensor.role == "index":
            whole = self.host_view(tensor.buffer, tensor.concrete_shape(widths))
            whole[:] = range(len(whole))
        kind = DTYPES[self._dtypes[tensor.buffer]].onnx
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(self._lines(tensor, widths, rows), kind)

    def bind(
        self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = (), rows: range | None = None
    ) -> Run:
        sizes = {BATCH: self._batch, **widths}
        rows = check_rows(rows, sizes[BATCH], has_ranges=self.supports_batch_slices)
        session, tensors = self._session(graph), self._graphs[graph]
        binding, file = session.io_binding(), self._files[graph]
        try:
            for tensor in tensors.inputs:
                binding.bind_ortvalue_input(tensor.name, self._value(tensor, sizes, rows))
            for tensor in tensors.outputs:
                if tensor.role != "optional" or tensor.name in optional:
                    binding.bind_ortvalue_output(tensor.name, self._value(tensor, sizes, rows))
        except ERRORS as error:
            raise engine_error(f"{file}: ONNX Runtime does not bind it", error) from error
        copies = [
            (self._lines(tensor, sizes, rows), self._lines(replace(tensor, buffer=read), sizes, rows))
            for tensor in tensors.outputs
            if (read := tensors.copy_after_run.get(tensor.buffer))
        ]
        written_rows = [
            (self._lines(tensor, sizes, rows), self._lines(cache, sizes, rows))
            for tensor in tensors.outputs
            if (cache := tensors.write_after_run.get(tensor.buffer))
        ]

        def run() -> None:
            try:
                session.run_with_iobinding(binding)
            except ERRORS as error:
                raise engine_error(f"{file}: ONNX Runtime cannot run it", error) from error
            for written, read in copies:
                read[:] = written
            for new, cache in written_rows:
                _write_rows(new, cache, self.host_view("length", (sizes[BATCH],))[rows.start : rows.stop])

        return run

    def has(self, graph: str) -> bool:
        return graph in self._files

    def address(self, buffer: str) -> int:
        (array,) = (array for (name, _), array in self._arrays.items() if name == buffer)
        return array.ctypes.data

    def memory(self) -> dict[str, int]:
        return process_memory()


def _write_rows(new: Array, cache: Array, lengths: Array) -> None:
    """Write new rows [B, G, R, D] into a cache [B, G, S, D], in each batch slot from its committed length on."""
    for line, rows, length in zip(cache, new, lengths, strict=True):
        line[:, length : length + rows.shape[1]] = rows[:, : line.shape[1] - length]
