"""Calibration: ranges of the linear layers' inputs when the graph reads prompts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray
from onnx_ir.passes import common

from speccompile import native
from speccompile.compiler.lower import onnxruntime
from speccompile.compiler.lower.quantize.gemm import split_gemm
from speccompile.compiler.lower.quantize.linear import find_linears
from speccompile.compiler.lower.quantize.qdq import Ranges
from speccompile.compiler.weights import graph as weights_graph
from speccompile.compiler.weights.session import is_linked, open_linked
from speccompile.contract import BATCH, Graph
from speccompile.machine.system import available_cores

Feeds = dict[str, NDArray[np.generic]]

_OBSERVED = ("ReduceMin", "ReduceMax")


def calibrate(
    neutral: Path, graph: Graph, prompts: Iterable[Sequence[int]], before: tuple[Path, Graph] | None = None
) -> Ranges:
    """Return activation -> its smallest and largest value over all prompts, for the inputs of every linear layer.

    neutral: a float32 graph on disk, `graph` its contract. Each prompt is one window over empty caches, the same for
    every batch slot. An activation that no prompt reached (an expert's) has the range (inf, -inf). before: the graph
    that runs first in a round, for a graph that reads its outputs: features, and the caches that it has written.

    onnxruntime.quantization.calibrate finds the same ranges, in more than twice the memory: it reads and rewrites all
    weights (1.1 GB of them: 3.7 GB against 1.6 GB).
    """
    model = weights_graph.load(neutral)
    onnxruntime.lower(model)
    split_gemm(model)
    names = list(dict.fromkeys(str(linear.node.inputs[0].name) for linear in find_linears(model.graph)))
    path = neutral.with_suffix(".observed.onnx")  # in the folder of its weights, which it reads there
    _observe(model, names)
    weights_graph.store(model, path.parent)
    ir.save(model, path)
    try:
        session, found = _session(path), []
        first = None if before is None else _session(before[0])
        for prompt in prompts:
            feeds = _feeds(graph, list(prompt))
            if first is not None and before is not None:
                feeds |= _handed_on(first, before[1], graph, list(prompt))
            found.append(session.run(None, feeds))
    finally:
        path.unlink()
    bounds = np.array(found).reshape(-1, len(names), 2)  # [prompts, activations, smallest and largest]
    lows, highs = bounds[..., 0].min(axis=0), bounds[..., 1].max(axis=0)
    return {name: (float(low), float(high)) for name, low, high in zip(names, lows, highs, strict=True)}


def _observe(model: ir.Model, names: Sequence[str]) -> None:
    """Replace the outputs of the graph by the smallest and the largest value of some activations, in turn."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    model.graph.outputs.clear()
    for name in names:
        for op in _OBSERVED:
            node = ir.node(op, [values[name]], {"keepdims": 0})
            node.outputs[0].name, node.outputs[0].dtype = f"{name}.{op}", ir.DataType.FLOAT
            node.outputs[0].shape = ir.Shape([])
            model.graph.append(node)
            model.graph.outputs.append(node.outputs[0])
    common.RemoveUnusedNodesPass()(model)


def _session(path: Path) -> ort.InferenceSession:
    if is_linked(path):
        return open_linked(path, available_cores())
    options = ort.SessionOptions()
    options.log_severity_level = 3  # it warns of every cache that is not updated in place
    native.register(options)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _handed_on(first: ort.InferenceSession, before: Graph, graph: Graph, prompt: list[int]) -> Feeds:
    """Return the outputs that a graph reads of the one before it, over a whole prompt."""
    wanted = {tensor.name for tensor in graph.inputs}
    given = {t.name: t.buffer for t in before.outputs if t.buffer in wanted and t.role in ("link", "state")}
    return dict(zip(given.values(), first.run(list(given), _feeds(before, prompt)), strict=True))


def _feeds(graph: Graph, prompt: list[int]) -> Feeds:
    """Return the inputs of a round over a whole prompt."""
    tokens = len(prompt)
    has_tree = any(tensor.name == "nodes" for tensor in graph.outputs)  # then only the given tokens form a chain
    values = {
        "window": prompt,
        "n_given": [tokens if has_tree else 1],
        "n_total": [tokens],
        "length": [0],
        "logit_rows": range(tokens),
        "path": [*prompt, prompt[-1]],
        "n_path": [tokens],
        "catch_up": range(tokens + 1),
        "pairs": range(tokens + 1),
    }
    widths = {BATCH: 1, "window": tokens, "logit_rows": tokens, "catch_up": tokens + 1, "history": 1, "allowed": 1}
    feeds = {}
    for tensor in graph.inputs:
        # States are empty. Settings and random numbers affect the acceptance only, and no activation.
        value = np.array(values.get(tensor.name, [0]), tensor.dtype)
        feeds[tensor.name] = np.broadcast_to(value, tensor.concrete_shape(widths))
    return feeds
