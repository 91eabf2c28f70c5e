"""Graphs run on every path of the kernels, and on ONNX Runtime's own, side by side."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from speccompile import native
from speccompile.compiler.lower.native import CHAIN
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.runtime.devices.sessions import session_options

Arrays = list[np.ndarray]
Feeds = Mapping[str, np.ndarray]

needs_library = pytest.mark.skipif(native.library() is None, reason="the kernels are not compiled here")


def with_bodies(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the ONNX functions of the operators that it calls."""
    found = ir.from_proto(model)
    add_functions(found)
    return ir.to_proto(found)


def run_bodies(model: onnx.ModelProto, feeds: Feeds) -> Arrays:
    """Run on ONNX Runtime's own kernels."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(with_bodies(model).SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def operators(node: ir.Node) -> list[str]:
    """Return the operator of a node, or those of a chain's steps."""
    if node.op_type != CHAIN:
        return [node.op_type]
    return [step.split()[0] for step in node.attributes["steps"].as_string().splitlines()]


def operators_of(file: Path) -> list[str]:
    """Return the operators of a graph in a file, with those of chains in their place."""
    return [name for node in ir.load(file).graph for name in operators(node)]


class KernelRuns:
    """A graph on the project's kernels, with one thread and with two."""

    def __init__(self, model: onnx.ModelProto) -> None:
        serialized = with_bodies(model).SerializeToString()
        self._sessions = [
            ort.InferenceSession(serialized, session_options(threads), ["CPUExecutionProvider"]) for threads in (1, 2)
        ]

    def on(self, path: str, feeds: Feeds) -> list[Arrays]:
        """Return what every session gives on a path."""
        with taken(path):
            return [session.run(None, dict(feeds)) for session in self._sessions]

    def run(self, feeds: Feeds) -> Arrays:
        """Return what all paths and numbers of threads give: the same, bit for bit. What is no number may be any
        such."""
        runs = {(path, number): found for path in native.paths() for number, found in enumerate(self.on(path, feeds))}
        first = next(iter(runs.values()))
        for where, found in runs.items():
            for one, other in zip(first, found, strict=True):
                same_bits(one, other, f"{native.paths()[0]} and {where[0]}, session {where[1]}")
        return first


@contextmanager
def taken(path: str) -> Iterator[None]:
    """Run on another path."""
    before = native.kernels()
    native.use(path)
    try:
        yield
    finally:
        native.use(before)


def same_bits(one: np.ndarray, other: np.ndarray, where: str) -> None:
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    if one.dtype == np.float32:
        differ = (one.view(np.uint32) != other.view(np.uint32)) & ~(np.isnan(one) & np.isnan(other))
    else:
        differ = one != other
    assert not differ.any(), f"{where}: {differ.sum()} of {one.size} differ, first at {np.argwhere(differ)[0]}"
