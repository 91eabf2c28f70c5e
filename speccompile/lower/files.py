"""Graphs on disk: one weights file for a model, shared by its neutral graph and by every lowered one."""

from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.contract import Graph
from speccompile.lower import onnxruntime
from speccompile.lower.passes.transposed_weights import transposed_weights

GRAPHS = "graphs"
"""The folder of graphs and weights in a bundle."""

LOWERINGS = {"onnxruntime": onnxruntime.lower}
"""Backend -> its lowering, neutral ONNX -> ONNX, in place."""

_SMALLEST_EXTERNAL = 1024  # bytes: scalars and short tables stay in the graph


def neutral_file(graph: Graph) -> str:
    """Where the neutral graph lies while a bundle is built. It is no part of the bundle."""
    return f"{GRAPHS}/{graph.name}.neutral.onnx"


def engine_file(graph: Graph, engine: str) -> str:
    """Where an engine's graph lies in a bundle."""
    return f"{GRAPHS}/{graph.name}.{engine}.onnx"


def write_neutral(model: ir.Model, graph: Graph, folder: Path, weights: str) -> Path:
    """Tidy a traced graph and write it, its large weights into the file `weights` beside it. Returns its path.

    Weights are read from torch one at a time. Folding transposes here, before the weights are written, lets every
    backend read the same file.
    """
    common.IdentityEliminationPass()(model)
    common.CommonSubexpressionEliminationPass()(model)  # an unrolled drafter transposes each weight K times
    transposed_weights(model)
    common.RemoveUnusedNodesPass()(model)
    path = folder / neutral_file(graph)
    path.parent.mkdir(parents=True, exist_ok=True)
    ir.save(model, path, external_data=weights, size_threshold_bytes=_SMALLEST_EXTERNAL)
    if (path.parent / weights).stat().st_size == 0:
        (path.parent / weights).unlink()
    return path


def write_lowered(neutral: Path, graph: Graph, folder: Path, engine: str, backend: str) -> Path:
    """Lower a neutral graph for an engine. The new graph reads the same weights file. Returns its path."""
    model = ir.load(neutral)
    LOWERINGS[backend](model)
    path = folder / engine_file(graph, engine)
    ir.save(model, path)
    return path
