"""Common base of engines on a GPU: buffers on the device, mirrors on the host, copies around every run.

States, and links between graphs, live on the device and are never copied to the host. All other buffers have a pinned
mirror on the host, which the loop reads and writes: inputs are uploaded before a graph runs and outputs downloaded
after it, on one stream.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speccompile.bundle.sources import is_cross_state
from speccompile.contract import Graph, Tensor
from speccompile.runtime.devices.cuda import Device, Memory, Rows
from speccompile.runtime.devices.engine import (
    Array,
    Run,
    buffer_dtypes,
    check_rows,
    numpy_dtype,
    process_memory,
    scratch_buffers,
    scratch_size,
)

Shape = tuple[int, ...]

_DEVICE_ONLY_ROLES = ("state", "link")
"""Roles of tensors that stay on the device."""


@dataclass(frozen=True, eq=False)
class BoundTensor:
    """A tensor of a graph at its concrete shape, and its address on the device."""

    tensor: Tensor
    shape: Shape
    address: int


@dataclass(frozen=True, eq=False)
class Binding:
    """A graph at concrete shapes. uploads, downloads: pinned mirrors, and their addresses on the device; copies: source
    and destination on the device, and size in bytes; new_rows: rows, and the cache into which they are written."""

    graph: str
    inputs: tuple[BoundTensor, ...]
    outputs: tuple[BoundTensor, ...]
    uploads: tuple[tuple[Array, int], ...]
    downloads: tuple[tuple[int, Array], ...]
    copies: tuple[tuple[int, int, int], ...] = ()
    new_rows: tuple[tuple[BoundTensor, BoundTensor], ...] = ()

    @property
    def widths(self) -> str:
        """Name of the binding in messages."""
        shapes = ", ".join(f"{each.tensor.name} {list(each.shape)}" for each in self.inputs if _varies(each.tensor))
        return f"{self.graph} at {shapes or 'its only shape'}"


def _batch(graph: Graph) -> int:
    """Return the batch size: a number in graphs for a device. One that encodes a source has caches, and no length."""
    sized = [tensor for tensor in graph.inputs if tensor.name == "length" or is_cross_state(tensor.buffer)]
    return int(sized[0].shape[0])


def _varies(tensor: Tensor) -> bool:
    return any(isinstance(size, str) for size in tensor.shape)


class DeviceEngine(ABC):
    """Base of engines on a GPU. It implements `devices.engine.Engine` except `_prepare`, which depends on the library.

    files: graph name -> the file that it is opened from.
    """

    supports_batch_slices = False
    needs_every_output = False
    """True if the library writes optional outputs even when they are not requested."""

    def __init__(self, device: Device, graphs: Sequence[Graph], files: Mapping[str, Path]) -> None:
        self._device, self._files = device, files
        self._graphs = {graph.name: graph for graph in graphs}
        self._dtypes = buffer_dtypes(graphs)
        tensors = [tensor for graph in graphs for tensor in (*graph.inputs, *graph.outputs)]
        self._staying = {tensor.buffer for tensor in tensors if tensor.role in _DEVICE_ONLY_ROLES}
        self._scratch = scratch_buffers(graphs)
        self._memory: dict[tuple[str, Shape], Memory] = {}
        self._mirrors: dict[tuple[str, Shape], Array] = {}
        """Buffer and shape -> pinned bytes; for scratch, bytes that shapes of about one size share."""
        self._runs: dict[tuple[str, tuple[Shape, ...], tuple[str, ...]], Run] = {}

    @abstractmethod
    def _prepare(self, binding: Binding) -> Run:
        """Return a function that runs a graph at these shapes to its end, copies included."""

    def host_view(self, buffer: str, shape: Shape) -> Array:
        return self._snapshot(buffer, shape) if buffer in self._staying else self._mirror(buffer, shape)

    def write_state(self, buffer: str, values: Array) -> None:
        mirror = self._device.pinned(values.nbytes)
        mirror[:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        self._device.upload(mirror, self._on_device(buffer, values.shape).address)
        self._device.synchronize()

    def has(self, graph: str) -> bool:
        return graph in self._files

    def memory(self) -> dict[str, int]:
        return process_memory()

    def address(self, buffer: str) -> int:
        (memory,) = (memory for (name, _), memory in self._memory.items() if name == buffer)
        return memory.address

    def bind(
        self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = (), rows: range | None = None
    ) -> Run:
        described = self._graphs[graph]
        if rows is not None:
            check_rows(rows, _batch(described), has_ranges=self.supports_batch_slices)
        shapes = tuple(tensor.concrete_shape(dict(widths)) for tensor in described.inputs)
        key = (graph, shapes, tuple(optional))
        if key not in self._runs:
            self._runs[key] = self._prepare(self._binding(described, widths, optional))
        return self._runs[key]

    def _binding(self, graph: Graph, widths: Mapping[str, int], optional: Sequence[str]) -> Binding:
        def bound(tensor: Tensor) -> BoundTensor:
            shape = tensor.concrete_shape(dict(widths))
            return BoundTensor(tensor, shape, self._on_device(tensor.buffer, shape).address)

        def read(tensor: Tensor) -> bool:
            return tensor.role != "optional" or tensor.name in optional

        inputs = tuple(bound(tensor) for tensor in graph.inputs)
        outputs = tuple(bound(tensor) for tensor in graph.outputs if read(tensor) or self.needs_every_output)
        for each in inputs:
            if each.tensor.role == "index":
                self._fill_iota(each)
        uploads = ((self._mirror(i.tensor.buffer, i.shape), i.address) for i in inputs if i.tensor.role == "io")
        downloads = (
            (o.address, self._mirror(o.tensor.buffer, o.shape))
            for o in outputs
            if o.tensor.role not in _DEVICE_ONLY_ROLES and read(o.tensor)
        )
        copies = (
            (
                o.address,
                self._on_device(graph.copy_after_run[o.tensor.buffer], o.shape).address,
                self._size(o.tensor.buffer, o.shape),
            )
            for o in outputs
            if o.tensor.buffer in graph.copy_after_run
        )
        caches = graph.write_after_run
        new_rows = ((o, bound(caches[o.tensor.buffer])) for o in outputs if o.tensor.buffer in caches)
        return Binding(graph.name, inputs, outputs, tuple(uploads), tuple(downloads), tuple(copies), tuple(new_rows))

    def _with_copies(self, binding: Binding, run: Run) -> None:
        """Enqueue `run` with the copies of a binding around it on the stream, without waiting."""
        for host, address in binding.uploads:
            self._device.upload(host, address)
        run()
        for written, read, size in binding.copies:
            self._device.copy(written, read, size)
        for address, host in binding.downloads:
            self._device.download(address, host)

    def _write_rows(self, binding: Binding) -> None:
        """Enqueue the copies of new rows into their caches, in each batch slot from its committed length on. Lengths
        are the host's: a captured graph would keep those of its first run."""
        for new, cache in binding.new_rows:
            batch, heads, count, width = new.shape
            size, room = self._size(new.tensor.buffer, (width,)), cache.shape[2]
            for slot, length in enumerate(self._mirror("length", (batch,)).tolist()):
                source = Rows(new.address + slot * heads * count * size, count * size)
                destination = Rows(cache.address + (slot * heads * room + length) * size, room * size)
                self._device.copy_rows(source, destination, min(count, room - length) * size, heads)

    def _on_device(self, buffer: str, shape: Shape) -> Memory:
        place = self._place(buffer, shape)
        if place not in self._memory:
            self._memory[place] = self._device.allocate(self._bytes(buffer, shape))
        return self._memory[place]

    def _mirror(self, buffer: str, shape: Shape) -> Array:
        place = self._place(buffer, shape)
        if place not in self._mirrors:
            self._mirrors[place] = self._device.pinned(self._bytes(buffer, shape))
        used = self._mirrors[place][: self._size(buffer, shape)]
        return used.view(numpy_dtype(self._dtypes[buffer])).reshape(shape)

    def _place(self, buffer: str, shape: Shape) -> tuple[str, Shape]:
        """Return the key of a buffer's memory: scratch is keyed by its bytes."""
        return buffer, (self._bytes(buffer, shape),) if buffer in self._scratch else shape

    def _bytes(self, buffer: str, shape: Shape) -> int:
        """Return the number of bytes to allocate."""
        size = self._size(buffer, shape)
        return scratch_size(size) if buffer in self._scratch else size

    def _snapshot(self, buffer: str, shape: Shape) -> Array:
        """Return a read-only copy of a buffer that stays on the device."""
        host = np.empty(shape, numpy_dtype(self._dtypes[buffer]))
        self._device.download(self._on_device(buffer, shape).address, host)
        self._device.synchronize()
        host.flags.writeable = False
        return host

    def _fill_iota(self, index: BoundTensor) -> None:
        """Fill an index input with 0, 1, 2, ..; nothing writes it again."""
        mirror = self._mirror(index.tensor.buffer, index.shape)
        mirror[:] = range(len(mirror))
        self._device.upload(mirror, index.address)

    def _size(self, buffer: str, shape: Shape) -> int:
        return int(np.prod(shape)) * numpy_dtype(self._dtypes[buffer]).itemsize


class RepeatDetector:
    """Detects shapes that are worth a CUDA graph: those at which a graph runs twice in a row.

    Rounds of decoding run at the same shapes again and again; the last chunk of a prompt may have any width.
    """

    def __init__(self) -> None:
        self._last: dict[str, Binding] = {}

    def again(self, binding: Binding) -> bool:
        """Return whether this graph's last run had these very shapes. Call it once before every run."""
        before = self._last.get(binding.graph)
        self._last[binding.graph] = binding
        return before is binding
