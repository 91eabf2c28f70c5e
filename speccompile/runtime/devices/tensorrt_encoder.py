"""The encoder of pictures as an engine of TensorRT: one context, a stream of its own, buffers that grow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.media import ENCODE_IMAGE, PATCHES, PIXELS, ROWS
from speccompile.contract import Tensor
from speccompile.runtime.devices.cuda import Device, Memory
from speccompile.runtime.devices.device import Binding, BoundTensor
from speccompile.runtime.devices.engine import Array, numpy_dtype, scratch_size
from speccompile.runtime.devices.tensorrt_program import Program


class TensorRTEncoder:
    """Runs the encoder's engine; one run at a time.

    Pictures have any size. A tensor has one buffer of each power of two of bytes on the device, and its pinned mirror,
    so that few pictures of many sizes do not take memory each.
    """

    def __init__(self, folder: Path, entry: EngineEntry, device: Device, trt: Any, patches: int) -> None:
        """device: with a stream of its own; patches: of a row, where the engine reads a picture's patches. Raise
        EngineError for an engine that the library refuses."""
        (self._graph,) = (graph for graph in entry.graphs if graph.name == ENCODE_IMAGE)
        self._device, self._patches = device, patches
        self._program = Program(trt, folder / entry.files[ENCODE_IMAGE], self._graph, device)
        self._context = self._program.context()
        self._buffers: dict[tuple[str, int], tuple[Memory, Array]] = {}

    def run(self, given: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32]:
        """Return the rows of one run, float32 [rows, W]. given: its inputs by name. Raise EngineError, for a picture
        outside the sizes for which the engine was built as well."""
        count = len(given[PIXELS])
        widths = {PATCHES: count, ROWS: count // self._patches}
        inputs, uploads = [], []
        for tensor in self._graph.inputs:
            bound, host = self._bound(tensor, widths)
            host[:] = given[tensor.name]
            inputs.append(bound)
            uploads.append((host, bound.address))
        ((rows, found),) = (self._bound(tensor, widths) for tensor in self._graph.outputs)
        self._context.point(Binding(ENCODE_IMAGE, tuple(inputs), (rows,), (), ()))
        for host, address in uploads:
            self._device.upload(host, address)
        self._context.enqueue()
        self._device.download(rows.address, found)
        self._device.synchronize()
        return found.copy()

    def _bound(self, tensor: Tensor, widths: dict[str, int]) -> tuple[BoundTensor, Array]:
        """Return a tensor at these sizes, and its mirror."""
        shape, dtype = tensor.concrete_shape(widths), numpy_dtype(tensor.dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        key = tensor.name, scratch_size(size)
        if key not in self._buffers:
            self._buffers[key] = self._device.allocate(key[1]), self._device.pinned(key[1])
        memory, mirror = self._buffers[key]
        return BoundTensor(tensor, shape, memory.address), mirror[:size].view(dtype).reshape(shape)
