"""TensorRT's failure on a graph, in a form that tells whether a smaller graph fails in the same way."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
from onnx import helper

from speccompile.compiler.diagnose.capability import check_capability
from speccompile.compiler.engines import Limits, Settings, process
from speccompile.contract import TENSORRT_DTYPES, Dimension, Graph, Tensor
from speccompile.errors import EngineError

TYPES = tuple(TENSORRT_DTYPES.values())
"""Types that inputs and outputs of a network may have."""

_SPECIFIC = re.compile(r"'[^']*'|\{[^}]*\}|\d+")
"""Parts of a message that differ between two graphs with the same failure: names and numbers."""


@dataclass(frozen=True)
class Failure:
    """A failure. stage: "parser" or "builder". reasons: without names and numbers. message: the full text."""

    stage: str
    reasons: frozenset[str]
    message: str

    def is_like(self, other: "Failure | None") -> bool:
        """Return whether the other failure is of the same stage, and shares a reason."""
        return other is not None and self.stage == other.stage and bool(self.reasons & other.reasons)

    def happens(self, path: Path, settings: Settings, limits: Limits) -> bool:
        """Return whether a graph fails in this way."""
        if self.stage == "parser":
            return self.is_like(_parse(path, settings))
        return self.is_like(find_failure(path, settings, limits))


def find_failure(path: Path, settings: Settings, limits: Limits) -> Failure | None:
    """Let TensorRT parse and build a graph, and return its failure, None if it succeeds. The engine is discarded.

    Inputs of dynamic shape take their shapes from the settings. Raise EngineError if TensorRT cannot be run.
    """
    return _parse(path, settings) or _build(path, settings, limits)


def _parse(path: Path, settings: Settings) -> Failure | None:
    capability = check_capability(path, settings.backend)
    if capability.not_checked:
        raise EngineError(
            f"{path.name} cannot be tried: {capability.not_checked}", hint="`speccompile doctor` says what is missing"
        )
    if not capability.findings:
        return None
    rows = [f"{each.where}: {each.reason}" for each in capability.findings]
    reasons = (f"{each.op} {each.reason}" for each in capability.findings)
    return Failure("parser", _without_specifics(reasons), "\n".join(rows))


def _build(path: Path, settings: Settings, limits: Limits) -> Failure | None:
    graph = _interface(onnx.load(path, load_external_data=False).graph)
    varying = {tensor.name for tensor in graph.inputs if not all(isinstance(size, int) for size in tensor.shape)}
    profile = {name: shapes for name, shapes in settings.profile.items() if name in varying}
    try:
        with TemporaryDirectory(prefix="speccompile-") as folder:
            process.build(path, graph, replace(settings, profile=profile), Path(folder) / "engine", limits)
    except EngineError as error:
        first, _, _ = str(error).partition("\n")
        return Failure("builder", _without_specifics([first.partition("; ")[0]]), str(error))
    return None


def _without_specifics(reasons: Iterable[str]) -> frozenset[str]:
    return frozenset(_SPECIFIC.sub("*", reason) for reason in reasons)


def _interface(graph: onnx.GraphProto) -> Graph:
    """Return the contract that describes the graph itself."""
    return Graph("reduced", tuple(map(_tensor, graph.input)), tuple(map(_tensor, graph.output)))


def _tensor(info: onnx.ValueInfoProto) -> Tensor:
    kind = info.type.tensor_type
    shape = tuple(_size(each) for each in kind.shape.dim)
    return Tensor(info.name, dtype_of(info), shape, info.name, "io")


def _size(dimension: Any) -> Dimension:
    return int(dimension.dim_value) if dimension.HasField("dim_value") else str(dimension.dim_param)


def dtype_of(info: onnx.ValueInfoProto) -> str:
    """Return the contract's name of a value's type; "" for an unknown one."""
    kind = info.type.tensor_type.elem_type
    return str(helper.tensor_dtype_to_np_dtype(kind)) if kind else ""
