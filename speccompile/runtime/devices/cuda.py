"""CUDA through cuda-python: memory, copies, one stream, captured graphs. Every call is checked in one place."""

import ctypes
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from speccompile.errors import EngineError
from speccompile.extras import install_hint
from speccompile.runtime.devices.engine import Array

_HINTS = {
    "cudaErrorInsufficientDriver": "install an NVIDIA driver that is new enough; `nvidia-smi` shows the one in use",
    "cudaErrorNoDevice": "`nvidia-smi` lists the GPUs; CUDA_VISIBLE_DEVICES may hide them",
    "cudaErrorMemoryAllocation": "free GPU memory, or build the bundle with a smaller cache.max_length or batch_size",
}
_HINT = "`nvidia-smi` shows the driver and the GPUs"


def open_device() -> "Device":
    """Return the first GPU that this process sees. Raise EngineError when there is none, or no cuda-python."""
    try:
        api = import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise EngineError(f"cuda-python is not installed: {error}", hint=install_hint("cuda")) from error
    return Device(api)


class Device:
    """A GPU, and the one stream that orders all work of an engine.

    api: `cuda.bindings.runtime`, or a stand-in. Raise EngineError without a driver or a GPU.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self._call("find a GPU", "cudaGetDeviceCount")
        self._call("use the GPU", "cudaSetDevice", 0)
        attribute = api.cudaDeviceAttr
        parts = (attribute.cudaDevAttrComputeCapabilityMajor, attribute.cudaDevAttrComputeCapabilityMinor)
        version = (self._call("ask the GPU", "cudaDeviceGetAttribute", part, 0) for part in parts)
        self.compute_capability = ".".join(str(number) for number in version)
        self.name: str = self._call("ask the GPU", "cudaGetDeviceProperties", 0).name.decode()
        # Not the default stream: it cannot be captured, and TensorRT synchronizes the whole device on it.
        self._stream = self._call("make a stream", "cudaStreamCreateWithFlags", api.cudaStreamNonBlocking)
        self.stream = int(self._stream)
        """Handle of the stream, as libraries take it."""
        _when_gone(self, api.cudaStreamDestroy, self._stream)

    def allocate(self, size: int) -> "Memory":
        """Return zeroed memory on the device, `size` bytes. Raise EngineError when memory is insufficient."""
        memory = Memory(self._call(f"allocate {size} bytes on the GPU", "cudaMalloc", size), size)
        _when_gone(memory, self._api.cudaFree, memory.address)
        self._call("zero memory", "cudaMemsetAsync", memory.address, 0, size, self._stream)
        return memory

    def pinned(self, size: int) -> Array:
        """Return zeroed pinned host memory, uint8 [size], for asynchronous copies."""
        address = self._call(f"allocate {size} pinned bytes", "cudaMallocHost", size)
        ctypes.memset(address, 0, size)
        raw = (ctypes.c_uint8 * size).from_address(address)
        _when_gone(raw, self._api.cudaFreeHost, address)  # every view keeps it alive
        return np.frombuffer(memoryview(raw), np.uint8)

    def upload(self, host: Array, address: int) -> None:
        """Enqueue a copy of a pinned array to the device."""
        kind = self._api.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call("copy to the GPU", "cudaMemcpyAsync", address, host.ctypes.data, host.nbytes, kind, self._stream)

    def download(self, address: int, host: Array) -> None:
        """Enqueue a copy from the device into an array."""
        kind = self._api.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call("copy from the GPU", "cudaMemcpyAsync", host.ctypes.data, address, host.nbytes, kind, self._stream)

    def copy(self, source: int, destination: int, size: int) -> None:
        """Enqueue a copy of bytes from one address on the device to another."""
        kind = self._api.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._call("copy on the GPU", "cudaMemcpyAsync", destination, source, size, kind, self._stream)

    def copy_rows(self, source: "Rows", destination: "Rows", size: int, count: int) -> None:
        """Enqueue `count` copies of `size` bytes on the device, at the strides of both sides."""
        kind = self._api.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        place = (destination.address, destination.stride, source.address, source.stride)
        self._call("copy on the GPU", "cudaMemcpy2DAsync", *place, size, count, kind, self._stream)

    def synchronize(self) -> None:
        """Wait for all work on the stream. Raise EngineError for work that has failed."""
        self._call("finish its work", "cudaStreamSynchronize", self._stream)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record the work that `work` enqueues, without running it, and return a function that launches all of it at
        once.

        Raise EngineError when it cannot be captured; the stream is then unchanged.
        """
        api = self._api
        # Other threads may allocate meanwhile: the graph records only this thread's calls.
        mode = api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("begin a capture", "cudaStreamBeginCapture", self._stream, mode)
        try:
            work()
        except EngineError:
            api.cudaStreamEndCapture(self._stream)
            api.cudaGetLastError()  # a refused capture must not surface in the next call
            raise
        graph = self._call("capture the stream", "cudaStreamEndCapture", self._stream)
        executable = self._call("instantiate a captured graph", "cudaGraphInstantiate", graph, 0)
        self._call("let go of a captured graph", "cudaGraphDestroy", graph)
        launch = _Launch(lambda: self._call("launch a captured graph", "cudaGraphLaunch", executable, self._stream))
        _when_gone(launch, api.cudaGraphExecDestroy, executable)
        return launch

    def _call(self, what: str, function: str, *arguments: Any) -> Any:
        """Call the API and return its result, or None without one. Raise EngineError that names `what` failed."""
        error, *result = getattr(self._api, function)(*arguments)
        if error != self._api.cudaError_t.cudaSuccess:
            (_, text), name = self._api.cudaGetErrorString(error), error.name
            self._api.cudaGetLastError()
            raise EngineError(f"CUDA cannot {what}: {text.decode()} ({name})", hint=_HINTS.get(name, _HINT))
        return result[0] if result else None


class Rows(NamedTuple):
    """Rows on the device: address of the first one, and bytes from one to the next."""

    address: int
    stride: int


class Memory:
    """Memory on the device: `size` bytes from `address` on. Freed with this object."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size


class _Launch:
    """A captured graph. Destroyed with this object."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self._launch = launch

    def __call__(self) -> None:
        self._launch()


def _when_gone(owner: Any, release: Callable[[Any], Any], handle: Any) -> None:
    # Not at exit: the process then frees everything anyway, and the driver may already be unloaded.
    weakref.finalize(owner, release, handle).atexit = False
