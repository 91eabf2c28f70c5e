"""CUDA's runtime as cuda-python shows it, over the host's memory: for what runs engines on a GPU, without one.

It is as unkind as CUDA: what is put on a stream happens when somebody waits for it, and not before; a stream that is
being captured runs nothing and refuses to be waited for; memory that was not allocated here is not copied.
"""

import ctypes
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from speccompile.runtime.devices.cuda import Device

Work = Callable[[], None]


class Error(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorNoDevice = 100
    cudaErrorStreamCaptureUnsupported = 900
    cudaErrorStreamCaptureInvalidated = 901


TEXTS = {
    Error.cudaErrorMemoryAllocation: b"out of memory",
    Error.cudaErrorInsufficientDriver: b"CUDA driver version is insufficient for CUDA runtime version",
    Error.cudaErrorNoDevice: b"no CUDA-capable device is detected",
    Error.cudaErrorStreamCaptureInvalidated: b"operation failed due to a previous error during capture",
}


class Stream:
    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: list[Work] = []
        self.captured: list[Work] | None = None
        self.invalid = False

    def __int__(self) -> int:
        return self.number


class FakeCuda:
    """`cuda.bindings.runtime`. `failures`: function -> the error that it returns; `copies`: direction and bytes."""

    cudaError_t = Error
    cudaMemcpyKind = IntEnum(
        "cudaMemcpyKind", {"cudaMemcpyHostToDevice": 1, "cudaMemcpyDeviceToHost": 2, "cudaMemcpyDeviceToDevice": 3}
    )
    cudaStreamCaptureMode = IntEnum("cudaStreamCaptureMode", {"cudaStreamCaptureModeThreadLocal": 1})
    cudaDeviceAttr = IntEnum(
        "cudaDeviceAttr", {"cudaDevAttrComputeCapabilityMajor": 75, "cudaDevAttrComputeCapabilityMinor": 76}
    )
    cudaStreamNonBlocking = 1

    def __init__(self, capability: tuple[int, int] = (8, 9)) -> None:
        self.capability = capability
        self.failures: dict[str, Error] = {}
        self.calls: Counter[str] = Counter()
        self.copies: list[tuple[str, int]] = []
        self.device: dict[int, np.ndarray] = {}
        self.pinned: dict[int, np.ndarray] = {}
        self.streams: dict[int, Stream] = {}
        self._numbers = count(1)

    def __getattribute__(self, name: str) -> Any:
        """Return functions whose calls are counted, and fail where they are told to."""
        found = object.__getattribute__(self, name)
        if not name.startswith("cuda") or not callable(found) or isinstance(found, type):
            return found

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] += 1
            if name in self.failures:
                return self.failures[name], None
            result = found(*arguments)
            return (Error.cudaSuccess, *result) if isinstance(result, tuple) else (result,)

        return call

    def open(self) -> Device:
        return Device(self)

    def view(self, address: int, size: int) -> np.ndarray:
        """Return uint8 [size] of the device's memory. It must lie inside one allocation."""
        start, memory = next((s, m) for s, m in self.device.items() if s <= address < s + max(1, m.nbytes))
        assert address + size <= start + memory.nbytes, f"{size} bytes reach past the end of an allocation"
        return memory[address - start : address - start + size]

    def put(self, stream: int, work: Work) -> None:
        """Put work on a stream, as a library does with its kernels."""
        found = self.streams[int(stream)]
        (found.waiting if found.captured is None else found.captured).append(work)

    def capturing(self, stream: int) -> bool:
        return self.streams[int(stream)].captured is not None

    def cudaGetErrorString(self, error: Error) -> tuple[bytes]:
        return (TEXTS.get(error, b"an error"),)

    def cudaGetLastError(self) -> Error:
        return Error.cudaSuccess

    def cudaGetDeviceCount(self) -> tuple[int]:
        return (1,)

    def cudaSetDevice(self, device: int) -> Error:
        return Error.cudaSuccess

    def cudaDeviceGetAttribute(self, attribute: int, device: int) -> tuple[int]:
        return (self.capability[attribute - 75],)

    def cudaGetDeviceProperties(self, device: int) -> tuple[SimpleNamespace]:
        return (SimpleNamespace(name=b"Fake GPU"),)

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[Stream]:
        stream = Stream(next(self._numbers))
        self.streams[stream.number] = stream
        return (stream,)

    def cudaStreamDestroy(self, stream: Stream) -> Error:
        del self.streams[stream.number]
        return Error.cudaSuccess

    def cudaMalloc(self, size: int) -> tuple[int]:
        return (self._allocate(self.device, size),)

    def cudaMallocHost(self, size: int) -> tuple[int]:
        return (self._allocate(self.pinned, size),)

    def _allocate(self, memory: dict[int, np.ndarray], size: int) -> int:
        assert not any(stream.captured is not None for stream in self.streams.values()), "allocated while capturing"
        array = np.full(size, 0xA5, np.uint8)  # nobody zeroes it for us
        memory[array.ctypes.data] = array
        return array.ctypes.data

    def cudaFree(self, address: int) -> Error:
        del self.device[address]
        return Error.cudaSuccess

    def cudaFreeHost(self, address: int) -> Error:
        del self.pinned[address]
        return Error.cudaSuccess

    def cudaMemsetAsync(self, address: int, value: int, size: int, stream: Stream) -> Error:
        memory = self.view(address, size)
        self.put(stream.number, lambda: memory.fill(value))
        return Error.cudaSuccess

    def cudaMemcpyAsync(self, to: int, source: int, size: int, kind: IntEnum, stream: Stream) -> Error:
        up = kind is self.cudaMemcpyKind.cudaMemcpyHostToDevice
        across = kind is self.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        for place in (to, source) if across else (to if up else source,):
            self.view(place, size)
        if up:
            assert any(start <= source < start + each.nbytes for start, each in self.pinned.items()), "not pinned"

        def copy() -> None:
            ctypes.memmove(to, source, size)
            self.copies.append(("across" if across else "up" if up else "down", size))

        self.put(stream.number, copy)
        return Error.cudaSuccess

    def cudaMemcpy2DAsync(
        self, to: int, to_pitch: int, source: int, pitch: int, size: int, count: int, kind: IntEnum, stream: Stream
    ) -> Error:
        assert kind is self.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        for row in range(count):
            self.cudaMemcpyAsync(to + row * to_pitch, source + row * pitch, size, kind, stream)
        return Error.cudaSuccess

    def cudaStreamSynchronize(self, stream: Stream) -> Error:
        if stream.captured is not None:
            stream.invalid = True
            return Error.cudaErrorStreamCaptureUnsupported
        while stream.waiting:
            stream.waiting.pop(0)()
        return Error.cudaSuccess

    def cudaStreamBeginCapture(self, stream: Stream, mode: IntEnum) -> Error:
        stream.captured, stream.invalid = [], False
        return Error.cudaSuccess

    def cudaStreamEndCapture(self, stream: Stream) -> tuple[list[Work]] | tuple[Error, None]:
        captured, stream.captured = stream.captured, None
        assert captured is not None
        return self._invalid() if stream.invalid else (captured,)

    def _invalid(self) -> Any:
        return Error.cudaErrorStreamCaptureInvalidated

    def cudaGraphInstantiate(self, graph: list[Work], flags: int) -> tuple[list[Work]]:
        return (list(graph),)

    def cudaGraphDestroy(self, graph: list[Work]) -> Error:
        return Error.cudaSuccess

    def cudaGraphLaunch(self, executable: list[Work], stream: Stream) -> Error:
        for work in executable:
            self.put(stream.number, work)
        return Error.cudaSuccess

    def cudaGraphExecDestroy(self, executable: list[Work]) -> Error:
        return Error.cudaSuccess
