"""The two flavours of TensorRT: the module that a backend needs, and reasons why a machine cannot build for it.

`tensorrt_rtx` builds for any GPU it knows, on a machine that may have none. `tensorrt` (10.15 and later, 11) builds for
the GPU of the machine.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from speccompile.errors import EngineError
from speccompile.extras import install_hint

DRIVER = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute: compute capability


@dataclass(frozen=True)
class Gpu:
    """A GPU; `compute_capability` as in "8.9"."""

    name: str
    compute_capability: str


@cache
def load(backend: str) -> Any:
    """Return the TensorRT module of a backend. Raise EngineError if it is not installed or cannot be loaded."""
    try:
        return import_module(backend)
    except (ImportError, OSError) as error:
        raise EngineError(
            f"backend {backend!r} needs the Python module {backend}, which cannot be imported: {error}",
            hint=install_hint(backend),
        ) from error


def find_gpu() -> Gpu | None:
    """Return CUDA's default GPU; None without a driver or a GPU."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, len(name), device)
        or driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        or driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    )
    return None if failed else Gpu(name.value.decode(), f"{major.value}.{minor.value}")


def check_buildable(backend: str) -> None:
    """Raise EngineError if this machine cannot build for `backend` now: no module, or no GPU although it needs one.

    A build catches it, marks the engine deferred and records the message.
    """
    load(backend)
    if backend == "tensorrt" and find_gpu() is None:
        raise EngineError(
            "backend 'tensorrt' builds for the GPU that it finds, and this machine has none with a working driver",
            hint="run `speccompile finish BUNDLE` on the device",
        )


def reason_to_defer(gpu: Gpu | None, compute_capability: str | None) -> str:
    """Return the reason to defer an engine for `compute_capability`; "" if this machine's GPU has it.

    Also return "" without a GPU, or if the engine is for any GPU.
    """
    if gpu is None or compute_capability in (None, gpu.compute_capability):
        return ""
    return f"it is for compute capability {compute_capability}, and {gpu.name} has {gpu.compute_capability}"
