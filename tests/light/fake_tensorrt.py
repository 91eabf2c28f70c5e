"""TensorRT's Python module over `FakeCuda`: engines that run the toy of `fake_bundle` on the device's memory.

A plan file is the description of its engine in JSON: what TensorRT says of its inputs and outputs. The context keeps
to what NVIDIA's guides say: every tensor needs an address, an alias that of its input, shapes the engine's range; a
context runs once after new shapes before it can be captured, and stays as it is from then on.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from speccompile.bundle.manifest import EngineEntry, Manifest, TensorRTBuild
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.contract import NEXT_ROUND_INPUTS, Graph, Tensor
from speccompile.runtime.devices.engine import Array
from tests.light.fake_bundle import toy_manifest
from tests.light.fake_cuda import FakeCuda
from tests.light.toy_engine import UNWRITTEN, ToyEngine

NAMES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16", "int64": "INT64", "bool": "BOOL"}
NUMPY = {name: np.dtype("uint16" if dtype == "bfloat16" else dtype) for dtype, name in NAMES.items()}


def device_manifest(**changes: object) -> Manifest:
    """Return a toy bundle with one TensorRT-RTX engine; `changes` as in `toy_manifest`."""
    made = toy_manifest(**changes)  # type: ignore[arg-type]
    files = {graph.name: f"engines/{graph.name}.engine" for graph in made.graphs}
    return replace(made, engines=(engine_entry("rtx", files, made.graphs),))


def engine_entry(name: str, files: dict[str, str], graphs: tuple[Graph, ...], **changes: Any) -> EngineEntry:
    values = {"backend": "tensorrt_rtx", "provider": "cuda", "compute_capability": "8.9"}
    build = TensorRTBuild(changes.pop("deferred", ""), {}, {}, {})
    return EngineEntry(
        name=name, files=files, precision={"target": "float32", "drafter": "float32"}, graphs=graphs, build=build,
        **(values | changes),
    )  # fmt: skip


def describe(graph: Graph, **changes: dict[str, Any]) -> dict[str, Any]:
    """Return what TensorRT says of an engine that is what the contract says; `changes`: tensor, dots as __ -> what is
    not."""

    def row(tensor: Tensor, mode: str) -> dict[str, Any]:
        shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
        aliased = graph.aliases.get(tensor.name) if mode == "OUTPUT" else None
        return {
            "mode": mode, "dtype": NAMES[tensor.dtype], "shape": shape, "location": "DEVICE", "aliased": aliased,
        } | changes.get(tensor.name.replace(".", "__"), {})  # fmt: skip

    tensors = {tensor.name: row(tensor, "INPUT") for tensor in graph.inputs}
    tensors |= {tensor.name: row(tensor, "OUTPUT") for tensor in graph.outputs}
    return {"graph": graph.name, "tensors": tensors}


def write_plans(folder: Path, entry: EngineEntry) -> None:
    for graph in entry.graphs:
        path = folder / entry.files[graph.name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(describe(graph)))


def member(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name)


class Logger:
    """`trt.ILogger`."""

    ERROR, INTERNAL_ERROR, WARNING = "ERROR", "INTERNAL_ERROR", "WARNING"


class Strategy(Enum):
    DISABLED = 0
    WHOLE_GRAPH_CAPTURE = 1


class FakeTensorRT:
    """The module. rtx: which flavour. largest: the largest width of its engines. refuses..: what it does not do."""

    __version__ = "1.7"
    ILogger = Logger

    def __init__(self, cuda: FakeCuda, manifest: Manifest, *, rtx: bool = True, largest: int = 64) -> None:
        self.cuda, self.manifest, self.largest = cuda, manifest, largest
        self.__name__ = "tensorrt_rtx" if rtx else "tensorrt"
        self.refuses: str = ""
        self.refuses_to_run = self.refuses_context = self.refuses_capture = False
        self.contexts: list[Context] = []
        self.engines: list[str] = []
        self.kernels: list[bytes] = []
        if rtx:
            self.CudaGraphStrategy = Strategy

    def Runtime(self, logger: Any) -> "Runtime":
        return Runtime(self, logger)


class Runtime:
    def __init__(self, trt: FakeTensorRT, logger: Any) -> None:
        self.trt, self.logger = trt, logger

    def deserialize_cuda_engine(self, plan: bytes) -> "CudaEngine | None":
        if self.trt.refuses:
            self.logger.log(Logger.ERROR, self.trt.refuses)
            return None
        return CudaEngine(self.trt, json.loads(plan))


class KernelStore:
    """`IRuntimeCache`: holds what the contexts compiled that it was given to."""

    def __init__(self, trt: FakeTensorRT) -> None:
        self.trt, self.kernels, self.given = trt, b"", False

    def deserialize(self, blob: bytes) -> bool:
        accepted = blob.startswith(b"kernels")
        self.kernels = blob if accepted else b""
        self.trt.kernels.append(self.kernels)
        return accepted

    def serialize(self) -> bytes:
        return self.kernels or (b"kernels" if self.given else b"")


class CudaEngine:
    def __init__(self, trt: FakeTensorRT, description: dict[str, Any]) -> None:
        self.trt, self.graph, self.tensors = trt, description["graph"], description["tensors"]
        self.names = list(self.tensors)
        self.num_io_tensors = len(self.names)
        trt.engines.append(self.graph)

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_mode(self, name: str) -> SimpleNamespace:
        return member(self.tensors[name]["mode"])

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return member(self.tensors[name]["dtype"])

    def get_tensor_location(self, name: str) -> SimpleNamespace:
        return member(self.tensors[name]["location"])

    def get_tensor_shape(self, name: str) -> list[int]:
        shape: list[int] = self.tensors[name]["shape"]
        return shape

    def get_aliased_input_tensor(self, name: str) -> str | None:
        aliased: str | None = self.tensors[name]["aliased"]
        return aliased

    def create_runtime_config(self) -> SimpleNamespace:
        config = SimpleNamespace(cuda_graph_strategy=Strategy.DISABLED)
        config.create_runtime_cache = lambda: KernelStore(self.trt)
        config.set_runtime_cache = lambda cache: setattr(cache, "given", True)
        return config

    def create_execution_context(self, config: SimpleNamespace | None = None) -> "Context | None":
        if self.trt.refuses_context:
            return None
        context = Context(self, config)
        self.trt.contexts.append(context)
        return context


class Context:
    def __init__(self, engine: CudaEngine, config: SimpleNamespace | None) -> None:
        self.engine, self.trt, self.config = engine, engine.trt, config
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.settled = self.captured = False
        self.runs = self.shapes_set = 0

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert not self.captured, "the context of a captured graph was changed"
        described = self.engine.tensors[name]["shape"]
        assert len(shape) == len(described), name
        fits = all(d in (-1, s) and s <= max(self.trt.largest, d) for d, s in zip(described, shape, strict=True))
        self.shapes[name], self.settled = shape, False
        self.shapes_set += 1
        return fits

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert not self.captured, "the context of a captured graph was changed"
        self.addresses[name] = address
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return a shape, in which sizes that vary are those of the input that they come from, as in the toy."""
        if self.engine.graph == ENCODE_IMAGE:
            rows, width = self.engine.tensors[name]["shape"]
            return self.shapes["pixels"][0] // 4 if rows == -1 else rows, width
        _, width = self.shapes["window"] if "window" in self.shapes else self.shapes["path"]
        described = self.engine.tensors[name]["shape"]
        (logit_rows,) = self.shapes.get("logit_rows", (0,))
        varying = {"path": width + 1, "logits": logit_rows, "nodes": logit_rows, "features": width}
        return tuple(varying[name] if size == -1 else size for size in described)

    def is_stream_capturable(self, stream: int) -> bool:
        return not self.trt.refuses_capture

    def execute_async_v3(self, stream: int) -> bool:
        cuda, engine = self.trt.cuda, self.engine
        if self.trt.refuses_to_run:
            return False
        if cuda.capturing(stream):
            if self.trt.refuses_capture or not self.settled:
                return False
            self.captured = True
        assert self.addresses.keys() == engine.tensors.keys(), "a tensor has no address"
        for name, row in engine.tensors.items():
            assert row["aliased"] is None or self.addresses[row["aliased"]] == self.addresses[name], name
        self.settled = True
        tensors = {name: self._view(name) for name in engine.tensors}

        def work() -> None:
            self.runs += 1
            if engine.graph == ENCODE_IMAGE:
                encode(tensors)
            else:
                Toy(self.trt.manifest, tensors).run(engine.graph, self.shapes)

        cuda.put(stream, work)
        return True

    def _view(self, name: str) -> Array:
        shape = self.shapes[name] if name in self.shapes else self.get_tensor_shape(name)
        dtype = NUMPY[self.engine.tensors[name]["dtype"]]
        return self.trt.cuda.view(self.addresses[name], int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


def encode(tensors: Mapping[str, Array]) -> None:
    """Write the rows of a toy encoder: sums of a row's pixels, plus its number of patches, times 1, 2, .."""
    rows, pixels = tensors["rows"], tensors["pixels"]
    sums = pixels.reshape(len(rows), -1).sum(1) + (len(tensors["places"]) if "places" in tensors else 0)
    rows[:] = sums[:, None] * np.arange(1, rows.shape[1] + 1)


class Toy(ToyEngine):
    """The toy over the memory that the tensors of one graph lie in."""

    def __init__(self, manifest: Manifest, tensors: Mapping[str, Array]) -> None:
        super().__init__(manifest)
        self.tensors = tensors
        self.caches = {part: tensors[f"{part}.rows"] for part in ("target", "drafter") if f"{part}.rows" in tensors}

    def host_view(self, buffer: str, shape: tuple[int, ...]) -> Array:
        drafted = {read: name for name, read in NEXT_ROUND_INPUTS.items()}
        found = self.tensors[buffer if buffer in self.tensors else drafted[buffer]]
        assert found.shape == shape, f"{buffer} is {found.shape}, the toy wants {shape}"
        return found

    def run(self, graph: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        for cache in self.caches.values():
            if not cache.any():  # it starts at zero, which is a token too
                cache[:] = UNWRITTEN
        width = (shapes["window"] if "window" in shapes else shapes["path"])[1]
        window = width if graph != "draft" else width - 1
        widths = {name: shapes[name][0] for name in ("logit_rows", "catch_up") if name in shapes}
        for name in widths:
            assert self.tensors[name].tolist() == list(range(widths[name])), f"{name} does not count up"
        widths |= {"history": shapes["history"][1]} if "history" in shapes else {}
        widths |= {"adjusted": shapes["adjusted"][2]} if "adjusted" in shapes else {}
        optional = ["logits"] if "logits" in self.tensors else []
        step: Callable[[], None] = self.bind(graph, widths | {"window": window}, optional)
        step()
