"""The engines that are tested on a GPU, and a bundle that runs on one of them while CUDA is being watched."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from speccompile.errors import EngineError
from speccompile.recipe.capabilities import SUPPORT_TABLE
from speccompile.runtime import Bundle
from speccompile.runtime.devices.onnxruntime_device import check_provider
from speccompile.runtime.devices.tensorrt_program import load

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "{backend: onnxruntime, provider: cpu, name: reference}"


@dataclass(frozen=True)
class Engine:
    """An engine of a recipe. precision: of the target; the drafter's is float16 where the target's is quantized. demo:
    the recipe's folder."""

    backend: str
    provider: str
    precision: str
    graphs: str = "separate"
    demo: str = "demo"

    @property
    def name(self) -> str:
        where = self.backend if self.provider == "cuda" and self.backend != "onnxruntime" else f"ort-{self.provider}"
        drafts = [] if self.demo == "demo" else [self.demo.removeprefix("demo-")]
        return "-".join([where, self.precision, *drafts, *([self.graphs] if self.graphs == "fused" else [])])

    def recipe(self, capability: str) -> str:
        """Return the engine in a recipe's words, for a GPU of this compute capability."""
        drafter = self.precision if self.precision.startswith("float") else "float16"
        keys: dict[str, Any] = {"backend": self.backend, "name": "gpu"}
        keys["precision"] = {"target": self.precision, "drafter": drafter}
        if self.backend == "onnxruntime":
            keys["provider"] = self.provider
        else:
            keys["compute_capability"] = capability
        if self.backend == "tensorrt":
            keys["defer"] = True
        return json.dumps(keys)  # JSON is YAML

    def lacks(self, capability: str) -> str:
        """Return why this machine cannot build or run it; "" when it can."""
        rows = [row for row in SUPPORT_TABLE if self.backend in row["backend"] and self.precision in row["precision"]]
        able = [word for row in rows for word in row["compute_capability"]]
        if able and capability not in able:
            return f"{self.backend} in {self.precision} is for {', '.join(able)}, this GPU has {capability}"
        try:
            if self.backend == "onnxruntime":
                check_provider(self.provider)
            else:
                load(self.backend)
        except EngineError as error:
            return str(error)
        return ""


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("tensorrt_rtx", "cuda", "float32"),
        Engine("tensorrt_rtx", "cuda", "float16"),
        Engine("tensorrt_rtx", "cuda", "float16", "fused"),
        Engine("tensorrt_rtx", "cuda", "int4"),
        Engine("tensorrt", "cuda", "float32"),
        Engine("tensorrt", "cuda", "float16"),
        Engine("onnxruntime", "cuda", "float32"),
        Engine("onnxruntime", "cuda", "float16"),
        Engine("onnxruntime", "nv_tensorrt_rtx", "float16"),
        Engine("tensorrt_rtx", "cuda", "float16", "fused", "demo-eagle3"),
        Engine("tensorrt_rtx", "cuda", "float16", "separate", "demo-dflash"),
        Engine("onnxruntime", "cuda", "float16", "separate", "demo-eagle3"),
    )
}


class Watched:
    """cuda-python with a record of its copies, of the graphs that it launched, and of the seconds spent waiting."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.clear()

    def clear(self) -> None:
        self.copies: Counter[tuple[str, int]] = Counter()
        self.launches = 0
        self.waited = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def cudaMemcpyAsync(self, to: int, source: int, size: int, kind: Any, stream: Any) -> Any:
        self.copies["up" if kind == self._api.cudaMemcpyKind.cudaMemcpyHostToDevice else "down", size] += 1
        return self._api.cudaMemcpyAsync(to, source, size, kind, stream)

    def cudaGraphLaunch(self, executable: Any, stream: Any) -> Any:
        self.launches += 1
        return self._api.cudaGraphLaunch(executable, stream)

    def cudaStreamSynchronize(self, stream: Any) -> Any:
        start = time.perf_counter()
        result = self._api.cudaStreamSynchronize(stream)
        self.waited += time.perf_counter() - start
        return result


class Opened:
    """A bundle on an engine, and beside it on the processor."""

    def __init__(self, engine: Engine, folder: Path, watched: Watched) -> None:
        self.engine, self.folder, self.watched = engine, folder, watched
        start = time.perf_counter()
        self.bundle = Bundle.open(folder, engine="gpu")
        self.open_seconds = time.perf_counter() - start

    @cached_property
    def reference(self) -> Bundle:
        return Bundle.open(self.folder, engine="reference")

    @contextmanager
    def watching(self) -> Iterator[Watched]:
        """Yield what CUDA was asked from here on."""
        self.watched.clear()
        yield self.watched
