"""Smoke tests of a machine's features: `python -m speccompile.cli.smoke_tests NAME` runs one and exits 0, or fails.

An installed library may fail to load, or crash its process. So every test runs in a separate process, whose last output
line is the reason of a failure.
"""

import ctypes
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from speccompile import __version__, native
from speccompile.extras import EXTRAS
from speccompile.runtime.devices.cuda import open_device
from speccompile.runtime.devices.protobuf import bytes_field, integer_field

RUNTIME_MODULES = ("blake3", "jinja2", "tokenizers")


def run() -> None:
    """Import the runtime's packages and run a graph on the CPU."""
    for module in RUNTIME_MODULES:
        import_module(module)
    _run_graph("CPUExecutionProvider")


def run_kernels() -> None:
    """Run one of the kernels on the CPU, as a custom operator of ONNX Runtime."""
    import numpy as np
    import onnxruntime

    from speccompile.runtime.devices.sessions import session_options

    session = onnxruntime.InferenceSession(_norm_graph(), session_options(1), providers=["CPUExecutionProvider"])
    (rows,) = session.run(None, {"x": np.array([[1, 7]], np.float32), "weight": np.array([5, 10], np.float32)})
    if not np.allclose(rows, [[1, 14]]):
        sys.exit(f"expected the kernels to normalize 1 and 7 to 1 and 14, got {rows.tolist()}")


def run_native() -> None:
    """Start the C++ command, and load its library and ONNX Runtime's."""
    found = native.locations()
    if found.command is None or found.library is None:
        sys.exit("the runtime in C++ was not compiled")
    said = subprocess.run([found.command, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    if said.returncode or __version__ not in said.stdout.split():
        sys.exit(f"expected {found.command} to be version {__version__}, got {said.stdout}{said.stderr}")
    if not hasattr(ctypes.CDLL(str(found.library)), "spc_bundle_open"):
        sys.exit(f"expected {found.library} to have spc_bundle_open")
    if found.onnxruntime is not None and not hasattr(ctypes.CDLL(str(found.onnxruntime)), "OrtGetApiBase"):
        sys.exit(f"expected {found.onnxruntime} to be ONNX Runtime, which has OrtGetApiBase")


def compile_() -> None:
    """Import the packages for compiling."""
    for module in EXTRAS["compile"]:
        import_module(module)


def build_tensorrt_rtx() -> None:
    """Create a TensorRT-RTX builder."""
    _make("tensorrt_rtx", "Builder")


def build_tensorrt() -> None:
    """Create a TensorRT builder, which needs the GPU."""
    _make("tensorrt", "Builder")


def run_cuda() -> None:
    """Run a graph on the GPU."""
    open_device()
    _run_graph("CUDAExecutionProvider")


def run_nv_tensorrt_rtx() -> None:
    """Run a graph on the GPU."""
    open_device()
    _run_graph("NvTensorRTRTXExecutionProvider", "onnxruntime_ep_nv_tensorrt_rtx")


def run_tensorrt_rtx() -> None:
    """Reach the GPU and make what reads engines."""
    open_device()
    _make("tensorrt_rtx", "Runtime")


def run_tensorrt() -> None:
    """Reach the GPU and make what reads engines."""
    open_device()
    _make("tensorrt", "Runtime")


TRIALS: dict[str, Callable[[], None]] = {
    "run": run,
    "run_kernels": run_kernels,
    "run_native": run_native,
    "compile": compile_,
    "build_tensorrt_rtx": build_tensorrt_rtx,
    "build_tensorrt": build_tensorrt,
    "run_cuda": run_cuda,
    "run_nv_tensorrt_rtx": run_nv_tensorrt_rtx,
    "run_tensorrt_rtx": run_tensorrt_rtx,
    "run_tensorrt": run_tensorrt,
}


def _make(module: str, name: str) -> None:
    tensorrt: Any = import_module(module)
    getattr(tensorrt, name)(tensorrt.Logger())


def _run_graph(provider: str, plugin: str = "") -> None:
    """Run the example graph of ONNX Runtime, x * [[1, 2], [3, 4], [5, 6]], for x = 2."""
    import numpy as np
    import onnxruntime
    from onnxruntime.datasets import get_example

    onnxruntime.preload_dlls()
    options = onnxruntime.SessionOptions()
    if plugin:
        library = import_module(plugin)
        onnxruntime.register_execution_provider_library(library.get_ep_name(), library.get_library_path())
        options.add_provider_for_devices(
            [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider][:1], {}
        )
    session = onnxruntime.InferenceSession(get_example("mul_1.onnx"), options, providers=None if plugin else [provider])
    (product,) = session.run(None, {"X": np.full((3, 2), 2, np.float32)})
    if session.get_providers()[0] != provider or product.tolist() != [[2, 4], [6, 8], [10, 12]]:
        sys.exit(
            f"expected {provider} to give 2 * [[1, 2], [3, 4], [5, 6]], "
            f"got {product.tolist()} from {', '.join(session.get_providers())}"
        )


def _norm_graph() -> bytes:
    """Return the ONNX model y = RmsNorm(x [1, 2], weight [2]), encoded without the package onnx."""

    def tensor(name: str, *shape: int) -> bytes:
        dims = [(1, _message((1, size))) for size in shape]
        return _message((1, name), (2, _message((1, _message((1, 1), (2, _message(*dims)))))))

    epsilon = _message((1, "epsilon"), (20, 1)) + struct.pack("<Bf", 2 << 3 | 5, 0.0)
    node = _message((1, "x"), (1, "weight"), (2, "y"), (4, "RmsNorm"), (5, epsilon), (7, native.DOMAIN))
    inputs = [(11, tensor("x", 1, 2)), (11, tensor("weight", 2))]
    graph = _message((1, node), (2, "norm"), *inputs, (12, tensor("y", 1, 2)))
    opsets = [(8, _message((1, domain), (2, version))) for domain, version in (("", 21), (native.DOMAIN, 1))]
    return _message((1, 10), (7, graph), *opsets)


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Return a protobuf message with these fields, each (number, value)."""

    def field(number: int, value: int | str | bytes) -> bytes:
        if isinstance(value, int):
            return integer_field(number, value)
        return bytes_field(number, value.encode() if isinstance(value, str) else value)

    return b"".join(field(*each) for each in fields)


if __name__ == "__main__":
    TRIALS[sys.argv[1]]()
