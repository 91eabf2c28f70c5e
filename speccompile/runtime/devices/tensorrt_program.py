"""TensorRT engine file: checked against the contract, and run in execution contexts.

`tensorrt` and `tensorrt_rtx` have the same Python API for this; the module is an argument. `tensorrt_rtx` compiles its
kernels when they first run, and can capture CUDA graphs by itself.
"""

from collections import deque
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from speccompile.bundle.delta import read_delta
from speccompile.contract import TENSORRT_DTYPES, Graph, Tensor
from speccompile.errors import EngineError
from speccompile.extras import install_hint
from speccompile.progress import LOGGER
from speccompile.runtime.devices.cuda import Device
from speccompile.runtime.devices.device import Binding
from speccompile.runtime.devices.kernel_cache import KernelCache

_REBUILD = "build the bundle again with this speccompile"


@cache
def load(backend: str) -> Any:
    """Return the TensorRT module of a backend. Raise EngineError when it is not installed or cannot be loaded."""
    try:
        return import_module(backend)
    except (ImportError, OSError) as error:
        raise EngineError(
            f"the Python module {backend} cannot be imported: {error}", hint=install_hint(backend)
        ) from error


@cache
def make_logger(trt: Any) -> Any:
    """Return the logger of this process: TensorRT keeps the first one it gets. `errors` holds its last few error
    messages."""

    class Logger(trt.ILogger):  # type: ignore[misc]  # the module is an argument
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: deque[str] = deque(maxlen=3)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)
            LOGGER.debug("%s: %s", trt.__name__, message)

    return Logger()


class Program:
    """Engine of one graph. Raise EngineError when the library refuses it or it does not match the contract."""

    def __init__(self, trt: Any, path: Path, graph: Graph, device: Device) -> None:
        self._trt, self._device, self.graph = trt, device, graph
        self._logger = make_logger(trt)
        self._runtime = trt.Runtime(self._logger)  # must outlive the engine
        plan = read_delta(path)
        self._engine = self._deserialize(plan, path)
        _check(self._engine, graph, path.name)
        self.captures_itself = hasattr(trt, "CudaGraphStrategy")
        """True if contexts capture CUDA graphs by themselves. A capture from outside would miss the shape-specialized
        kernels that TensorRT-RTX compiles meanwhile."""
        self._config = self._engine.create_runtime_config() if self.captures_itself else None
        if self._config is not None:
            self._config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
            self._kernels = KernelCache(self._config, plan, f"{trt.__name__} {trt.__version__} {device.name}")

    def context(self) -> "Context":
        """Return a new execution context, with its own memory for intermediate tensors."""
        arguments = () if self._config is None else (self._config,)
        raw = self._engine.create_execution_context(*arguments)
        if raw is None:
            raise EngineError(
                f"{self._trt.__name__} cannot make an execution context for {self.graph.name}: {self._said()}",
                hint="free GPU memory, or build the bundle with a smaller cache.prefill_chunk or batch_size",
            )
        return Context(raw, self._device, self._said, notes=self.captures_itself)

    def _deserialize(self, plan: bytes, path: Path) -> Any:
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise EngineError(
                f"{self._trt.__name__} {self._trt.__version__} does not take {path.name} on {self._device.name} "
                f"(compute capability {self._device.compute_capability}): {self._said()}",
                hint="an engine runs with the version and the compute capability that it was built for, which "
                "`speccompile inspect` shows",
            )
        return engine

    def _said(self) -> str:
        """Return the library's last errors."""
        return "; ".join(self._logger.errors) or "it does not say why"


class Context:
    """Execution context, bound to one binding at a time."""

    def __init__(self, raw: Any, device: Device, said: Any, *, notes: bool) -> None:
        """notes: whether to log, once, that the library cannot capture the work."""
        self._raw, self._device, self._said, self._notes = raw, device, said, notes
        self._binding: Binding | None = None

    def point(self, binding: Binding) -> None:
        """Use these shapes and addresses from now on. Raise EngineError for what the engine cannot take."""
        if binding is self._binding:
            return
        self._binding = None  # after a refusal, the context has shapes of both bindings
        for each in binding.inputs:
            if not self._raw.set_input_shape(each.tensor.name, each.shape):
                raise EngineError(
                    f"{binding.widths}: {each.tensor.name} is outside what the engine was built for: {self._said()}",
                    hint="`speccompile inspect` shows the smallest and the largest shapes",
                )
        for each in (*binding.inputs, *binding.outputs):
            if not self._raw.set_tensor_address(each.tensor.name, each.address):
                raise EngineError(
                    f"{binding.widths}: {each.tensor.name} takes no address: {self._said()}", hint=_REBUILD
                )
        for each in binding.outputs:
            shape = tuple(self._raw.get_tensor_shape(each.tensor.name))
            if shape != each.shape:  # it would write past the end of the buffer
                raise EngineError(
                    f"{binding.widths}: the engine gives {each.tensor.name} the shape {list(shape)}, the contract "
                    f"{list(each.shape)}",
                    hint=_REBUILD,
                )
        self._binding = binding
        if self._notes and not self._raw.is_stream_capturable(self._device.stream):
            LOGGER.warning("%s: runs without a CUDA graph, which the library says it cannot capture", binding.widths)
            self._notes = False

    def enqueue(self) -> None:
        """Enqueue the graph on the stream. Raise EngineError when the library refuses."""
        if not self._raw.execute_async_v3(self._device.stream):
            widths = self._binding.widths if self._binding else "an execution context without a binding"
            raise EngineError(f"{widths}: the library refuses to run it: {self._said()}")


def _check(engine: Any, graph: Graph, file: str) -> None:
    """Raise EngineError for the first tensor of the engine that does not match the contract."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    expected = sorted(tensor.name for tensor in (*graph.inputs, *graph.outputs))
    if sorted(names) != expected:
        raise EngineError(f"{file}: its tensors are {sorted(names)}, the contract's {expected}", hint=_REBUILD)
    for kind, tensors in (("INPUT", graph.inputs), ("OUTPUT", graph.outputs)):
        for tensor in tensors:
            found, wanted = _described(engine, tensor.name), _wanted(tensor, kind)
            if found != wanted:
                raise EngineError(f"{file}: {tensor.name} is {found}, by the contract {wanted}", hint=_REBUILD)
    for output, wanted in graph.aliases.items():
        read = engine.get_aliased_input_tensor(output)
        if read != wanted:
            raise EngineError(
                f"{file}: {output} updates {read or 'nothing'} in place, by the contract {wanted}", hint=_REBUILD
            )


def _described(engine: Any, name: str) -> str:
    """Return kind, dtype, shape and location of a tensor, as messages show them."""
    dtype = engine.get_tensor_dtype(name).name
    shape = list(engine.get_tensor_shape(name))
    place = engine.get_tensor_location(name).name
    return f"{engine.get_tensor_mode(name).name} {TENSORRT_DTYPES.get(dtype, dtype)} {shape} on the {place}"


def _wanted(tensor: Tensor, kind: str) -> str:
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
    return f"{kind} {tensor.dtype} {shape} on the DEVICE"
