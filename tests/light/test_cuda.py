"""The layer over cuda-python: order, pinned memory, captures, and what it says when CUDA refuses."""

import sys

import numpy as np
import pytest

from speccompile.errors import EngineError
from speccompile.runtime.devices.cuda import open_device
from tests.light.fake_cuda import Error, FakeCuda


def test_what_the_gpu_is():
    device = FakeCuda((12, 0)).open()
    assert (device.compute_capability, device.name) == ("12.0", "Fake GPU")


@pytest.mark.parametrize(
    ("function", "error", "message", "hint"),
    [
        (
            "cudaGetDeviceCount", Error.cudaErrorInsufficientDriver,
            r"CUDA cannot find a GPU: CUDA driver version is insufficient .* \(cudaErrorInsufficientDriver\)",
            "install an NVIDIA driver",
        ),
        ("cudaGetDeviceCount", Error.cudaErrorNoDevice, "CUDA cannot find a GPU: no CUDA", "CUDA_VISIBLE_DEVICES"),
        ("cudaSetDevice", Error.cudaErrorInvalidValue, "CUDA cannot use the GPU: an error", "`nvidia-smi` shows"),
    ],
)  # fmt: skip
def test_a_machine_without_a_gpu_that_works(function, error, message, hint):
    cuda = FakeCuda()
    cuda.failures[function] = error
    with pytest.raises(EngineError, match=message) as caught:
        cuda.open()
    assert hint in caught.value.hint


def test_cuda_python_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with pytest.raises(EngineError, match="cuda-python is not installed: ") as caught:
        open_device()
    assert caught.value.hint == "pip install 'speccompile[gpu]'"


def test_cuda_python_itself_without_a_gpu():
    """Find the names and results of the fake's functions in the real module."""
    runtime = pytest.importorskip("cuda.bindings.runtime")
    if runtime.cudaGetDeviceCount()[0] == runtime.cudaError_t.cudaSuccess:
        pytest.skip("this machine has a GPU")
    with pytest.raises(EngineError, match=r"CUDA cannot find a GPU: .+ \(cudaError\w+\)"):
        open_device()
    for name in dir(FakeCuda):
        if name.startswith("cuda"):
            assert hasattr(runtime, name), name
    for enum in ("cudaMemcpyKind", "cudaStreamCaptureMode", "cudaDeviceAttr", "cudaError_t"):
        for member in getattr(FakeCuda, enum).__members__:
            assert member in getattr(runtime, enum).__members__, member


def test_copies_happen_in_order_when_somebody_waits():
    cuda = FakeCuda()
    device = cuda.open()
    memory, host = device.allocate(16), device.pinned(16).view(np.int64)
    device.synchronize()
    assert not cuda.view(memory.address, 16).any()
    host[:] = 1, 2
    device.upload(host, memory.address)
    host[0] = 3  # before the stream gets there: it is too early
    device.download(memory.address, host)
    device.synchronize()
    assert host.tolist() == [3, 2]
    assert cuda.copies == [("up", 16), ("down", 16)]


def test_there_is_too_little_memory():
    cuda = FakeCuda()
    device = cuda.open()
    cuda.failures["cudaMalloc"] = Error.cudaErrorMemoryAllocation
    with pytest.raises(EngineError, match=r"CUDA cannot allocate 1024 bytes on the GPU: out of memory") as caught:
        device.allocate(1024)
    assert "smaller cache.max_length or batch_size" in caught.value.hint


def test_a_capture_runs_when_it_is_launched_and_as_often():
    cuda = FakeCuda()
    device = cuda.open()
    memory, host = device.allocate(8), device.pinned(8)
    launch = device.capture(lambda: device.upload(host, memory.address))
    device.synchronize()
    assert cuda.copies == []
    for value in (1, 2):
        host[:] = value
        launch()
        device.synchronize()
        assert cuda.view(memory.address, 8).tolist() == [value] * 8


@pytest.mark.parametrize("raised", [True, False])
def test_a_refused_capture_leaves_the_stream_usable(raised):
    """Refuse a capture, which may raise or only become invalid, and run again."""
    cuda = FakeCuda()
    device = cuda.open()
    memory, host = device.allocate(8), device.pinned(8)

    def refused():
        device.upload(host, memory.address)
        if raised:
            device.synchronize()
        else:
            cuda.cudaStreamSynchronize(cuda.streams[device.stream])

    with pytest.raises(EngineError, match=r"CUDA cannot (finish its work|capture the stream)"):
        device.capture(refused)
    host[:] = 7
    device.upload(host, memory.address)
    device.synchronize()
    assert cuda.view(memory.address, 8).tolist() == [7] * 8
    assert cuda.copies == [("up", 8)]
