"""Emulation of a graph whose dtype ONNX Runtime's CPU kernels lack. For the proof alone."""

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from speccompile.compiler.lower.files import save
from speccompile.compiler.lower.passes import Nodes
from speccompile.compiler.lower.passes.emulate_bfloat16 import emulate_bfloat16
from speccompile.contract import FP8, Graph, Tensor

_LACKING = ("bfloat16", FP8)
_FP8 = ir.DataType.FLOAT8E4M3FN


def stand_in(graph: Graph, file: str, folder: Path) -> tuple[Graph, str]:
    """Return an equivalent graph that ONNX Runtime's CPU provider can run, and its file in `folder`. Return `graph` and
    `file` if it can run these.

    bfloat16 results become float32, rounded to bfloat16 as tensor cores round. fp8 caches become float32 with the same
    values.
    """
    dtypes = {tensor.dtype for tensor in graph.inputs}
    if dtypes.isdisjoint(_LACKING):
        return graph, file
    path = folder / Path(file).with_suffix(".stand-in.onnx")
    if not path.exists():
        model = ir.load(folder / file)
        widen_caches(model)
        if "bfloat16" in dtypes:
            emulate_bfloat16(model)
        save(model, path, f"{path.stem}.weights")
    inputs, outputs = (tuple(map(_widened, tensors)) for tensors in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs), path.relative_to(folder).as_posix()


def _widened(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype="float32") if tensor.dtype in _LACKING else tensor


def widen_caches(model: ir.Model) -> int:
    """Before: caches and new rows of fp8. After: QuantizeLinear(cache, 1) of a float32 cache, DequantizeLinear(rows, 1)
    of its new rows."""
    graph, nodes = model.graph, Nodes()
    one, fired = nodes.number(1.0), 0
    for cache in [value for value in graph.inputs if value.dtype == _FP8]:
        codes = nodes("QuantizeLinear", cache, one, output_dtype=int(_FP8))
        codes.type, codes.shape = ir.TensorType(_FP8), cache.shape
        for node, place in list(cache.uses()):
            if node not in nodes.nodes:
                node.replace_input_with(place, codes)
        cache.type, fired = ir.TensorType(ir.DataType.FLOAT), fired + 1
    if fired:
        graph.insert_before(graph[0], nodes.nodes)
    for place, rows in enumerate(graph.outputs):
        if rows.dtype == _FP8:
            floats = ir.node("DequantizeLinear", [rows, one])
            graph.append(floats)
            result = floats.outputs[0]
            result.type, result.shape = ir.TensorType(ir.DataType.FLOAT), rows.shape
            result.name, rows.name = rows.name, f"{rows.name}.fp8"
            graph.outputs[place] = result
    return fired
