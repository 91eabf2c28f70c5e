"""Each ability of a machine, tried in small: `python -m speccompile.cli.trials NAME` does it and exits 0, or fails.

An installed library may still not load, and may take its process along. So every trial has a process of its own; what
it writes last says what went wrong.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from speccompile.cli.edge import COMPILE_EXTRA
from speccompile.runtime.cuda import open_device

RUNTIME_MODULES = ("blake3", "jinja2", "tokenizers")


def run() -> None:
    """Import what the runtime imports and run a graph on the CPU."""
    for module in RUNTIME_MODULES:
        import_module(module)
    _run_graph("CPUExecutionProvider")


def compile_() -> None:
    """Import what compiling imports."""
    for module in COMPILE_EXTRA:
        import_module(module)


def build_tensorrt_rtx() -> None:
    """Make a builder."""
    _make("tensorrt_rtx", "Builder")


def build_tensorrt() -> None:
    """Make a builder. This one asks the GPU."""
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
    """Run the graph that comes with ONNX Runtime, x * [[1, 2], [3, 4], [5, 6]], for an x of 2."""
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


if __name__ == "__main__":
    TRIALS[sys.argv[1]]()
