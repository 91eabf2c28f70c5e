"""ONNX Runtime on a GPU: buffers on the device bound by address, CUDA graphs for the shapes that decoding repeats.

Its copies are not ours: uploads are waited for before a graph runs, on whatever stream ONNX Runtime runs it, and a run
has ended when `run_with_iobinding` returns.
"""

import sys
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnxruntime as ort

from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import DTYPES
from speccompile.errors import EngineError
from speccompile.machine.system import available_cores
from speccompile.progress import LOGGER
from speccompile.runtime.devices.cuda import Device
from speccompile.runtime.devices.device import Binding, DeviceEngine, RepeatDetector
from speccompile.runtime.devices.engine import Run, eager_graphs
from speccompile.runtime.devices.sessions import ERRORS, as_text, first_line, open_or_raise, session_options

MAX_CUDA_GRAPHS = 8
"""Maximum number of CUDA graphs of a session. ONNX Runtime releases none before the session ends."""
_NOT_CAPTURED = "-1"


@dataclass(frozen=True)
class Provider:
    """Execution provider of ONNX Runtime on a device.

    plugin: package that contains it, "" for one that is compiled in. graph_key: run option with the number of a CUDA
    graph. memory: kind of device memory of its buffers. install: hint if it is missing.
    """

    name: str
    plugin: str
    graph_key: str
    memory: str
    install: str


# Both packages of ONNX Runtime fill the same folder: the one that is installed last wins, and uninstalling either
# breaks the other.
PROVIDERS = {
    "cuda": Provider(
        "CUDAExecutionProvider", "", "gpu_graph_id", "cuda",
        "pip uninstall onnxruntime, then pip install 'onnxruntime-gpu[cuda,cudnn]'",
    ),
    "nv_tensorrt_rtx": Provider(
        "NvTensorRTRTXExecutionProvider", "onnxruntime_ep_nv_tensorrt_rtx", "cuda_graph_annotation_id", "cuda",
        "pip install onnxruntime-ep-nv-tensorrt-rtx",
    ),
}  # fmt: skip


def check_provider(name: str) -> None:
    """Raise EngineError when this ONNX Runtime does not have a provider of the manifest."""
    provider = PROVIDERS[name]
    available = ort.get_available_providers()
    if provider.name not in available and not (provider.plugin and find_spec(provider.plugin)):
        raise EngineError(
            f"ONNX Runtime {ort.__version__} has no {provider.name}, but {', '.join(available)}", hint=provider.install
        )


class OnnxRuntimeDeviceEngine(DeviceEngine):
    """Implements `speccompile.runtime.devices.engine.Engine` for ONNX Runtime's providers on a GPU."""

    def __init__(self, folder: Path, entry: EngineEntry, device: Device, threads: int | None = None) -> None:
        """threads: as for `OnnxRuntimeEngine`; they launch kernels. Raises EngineError for a graph it does not take."""
        self.threads = threads or available_cores()
        super().__init__(device, entry.graphs, {name: folder / file for name, file in entry.files.items()})
        check_provider(entry.provider)
        self._provider = PROVIDERS[entry.provider]
        self._sessions: dict[str, _Session] = {}
        self._repeats = RepeatDetector()
        for name in eager_graphs(self._files):
            self._session(name)

    def _session(self, graph: str) -> "_Session":
        if graph not in self._sessions:
            self._sessions[graph] = _Session(self._files[graph], self._provider, self.threads)
        return self._sessions[graph]

    def _prepare(self, binding: Binding) -> Run:
        session = self._session(binding.graph)
        bound = session.bind(binding)

        def launch() -> None:
            again = self._repeats.again(binding)
            self._device.synchronize()
            session.run(bound, binding, again)

        def run() -> None:
            self._with_copies(binding, launch)
            self._device.synchronize()

        return run


class _Session:
    """A graph in ONNX Runtime, and the numbers of its CUDA graphs."""

    def __init__(self, path: Path, provider: Provider, threads: int) -> None:
        self._provider, self._path = provider, path
        self._numbers: dict[Binding, int] = {}
        self._capturing = True
        try:
            self._session = _open(path, provider, threads, capture=True)
        except EngineError as error:
            # Capturing is refused where a node is left to the CPU. Without it the graph may still run.
            self._session = _open(path, provider, threads, capture=False)
            self._refuse_capture(str(error))
        _check_taken(self._session, provider, path.name)
        _warn_fallback_nodes(self._session, provider, path.name)

    def bind(self, binding: Binding) -> Any:
        """Return the binding in ONNX Runtime's own form. Raise EngineError for a tensor that the graph does not
        have."""
        bound, memory = self._session.io_binding(), self._provider.memory
        ways = ((bound.bind_input, binding.inputs), (bound.bind_output, binding.outputs))
        for bind, each in ((bind, each) for bind, tensors in ways for each in tensors):
            try:
                bind(each.tensor.name, memory, 0, DTYPES[each.tensor.dtype].onnx, each.shape, each.address)
            except ERRORS as error:
                raise EngineError(
                    f"{self._path.name}: ONNX Runtime does not bind {each.tensor.name}: {first_line(error)}",
                    hint="build the bundle again with this speccompile",
                ) from error
        return bound

    def run(self, bound: Any, binding: Binding, again: bool) -> None:
        """Run to the end; again: whether the last run had the same shapes.

        A CUDA graph is replayed by its number whatever is bound, so each binding has its own number. ONNX Runtime runs
        a graph several times before it is captured, which changes nothing: until the host moves `length`, a round
        writes the same cache lines to the same positions.
        """
        if again and self._capturing and len(self._numbers) < MAX_CUDA_GRAPHS:
            self._numbers.setdefault(binding, len(self._numbers) + 1)  # 0 is ONNX Runtime's own
        if binding in self._numbers:
            try:
                return self._run(bound, str(self._numbers[binding]))
            except ERRORS as error:
                self._numbers.clear()
                self._refuse_capture(first_line(error))
        try:
            return self._run(bound, _NOT_CAPTURED)
        except ERRORS as error:
            raise EngineError(f"{binding.widths}: ONNX Runtime cannot run it: {first_line(error)}") from error

    def _run(self, bound: Any, number: str) -> None:
        options = ort.RunOptions()
        options.add_run_config_entry(self._provider.graph_key, number)
        self._session.run_with_iobinding(bound, options)

    def _refuse_capture(self, why: str) -> None:
        self._capturing = False
        LOGGER.warning("%s: runs without CUDA graphs: %s", self._path.name, why)


def _open(path: Path, provider: Provider, threads: int, *, capture: bool) -> ort.InferenceSession:
    options = session_options(threads, record_ep_graph_assignment_info="1")
    settings = {"enable_cuda_graph": "1" if capture else "0"}
    if provider.plugin:
        options.add_provider_for_devices(_plugin_devices(provider), settings)
        with as_text(path) as text:
            session = open_or_raise(path.name, lambda: ort.InferenceSession(text, options))
    else:
        with redirect_stdout(sys.stderr):  # it prints the libraries that it does not find
            ort.preload_dlls()  # CUDA and cuDNN from Python packages, where they are installed as such
        # Its default rounds products of float32 to ten bits, which is not what float32 means.
        settings |= {"device_id": "0", "use_tf32": "0"}
        providers = [(provider.name, settings)]
        with as_text(path) as text:
            session = open_or_raise(path.name, lambda: ort.InferenceSession(text, options, providers=providers))
    return session


def _check_taken(session: ort.InferenceSession, provider: Provider, file: str) -> None:
    """Raise EngineError when ONNX Runtime fell back to the processor for a provider, which it reports only in its
    log."""
    taken = session.get_providers()
    if provider.name not in taken:
        raise EngineError(
            f"ONNX Runtime {ort.__version__} could not load {provider.name} and took {', '.join(taken)} for {file}",
            hint=f"its own message says what is missing, often CUDA or cuDNN: {provider.install}",
        )


@cache
def _plugin_devices(provider: Provider) -> list[Any]:
    """Return the devices of a plugin provider. Raise EngineError when it cannot be loaded or has none."""
    plugin = import_module(provider.plugin)
    try:
        ort.register_execution_provider_library(plugin.get_ep_name(), plugin.get_library_path())
    except ERRORS as error:
        raise EngineError(
            f"ONNX Runtime cannot load {provider.name}: {first_line(error)}", hint="`nvidia-smi` shows the driver"
        ) from error
    devices = [device for device in ort.get_ep_devices() if device.ep_name == provider.name][:1]
    if not devices:
        raise EngineError(
            f"{provider.name} finds no GPU that it supports",
            hint="choose another engine of the bundle: --engine NAME (engine=NAME)",
        )
    return devices


def _warn_fallback_nodes(session: ort.InferenceSession, provider: Provider, file: str) -> None:
    """Warn of nodes that ONNX Runtime left to another provider: their inputs and outputs cross in every round."""
    assigned = session.get_provider_graph_assignment_info()
    stray = [node.op_type for part in assigned if part.ep_name != provider.name for node in part.get_nodes()]
    if stray:
        ops = ", ".join(f"{count} {op}" for op, count in sorted(Counter(stray).items()))
        LOGGER.warning("%s: ONNX Runtime leaves nodes to the CPU: %s", file, ops)
