"""What ONNX Runtime's CPU kernels run in the place of a lowered graph whose dtype they lack. For the proof alone."""

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from speccompile.contract import Graph, Tensor
from speccompile.lower.files import engine_file, save
from speccompile.lower.passes.emulate_bfloat16 import emulate_bfloat16


def write_stand_in(graph: Graph, folder: Path, engine: str) -> tuple[Graph, str] | None:
    """A graph that computes the same, and its file in `folder`; None when the lowered one runs as it is.

    Every bfloat16 result becomes a float32 one that is rounded to bfloat16, as tensor cores round it.
    """
    if all(tensor.dtype != "bfloat16" for tensor in graph.inputs):
        return None
    model = ir.load(folder / engine_file(graph, engine))
    emulate_bfloat16(model)
    name = f"{engine}.stand-in"
    save(model, folder / engine_file(graph, name), f"{graph.name}.{name}.weights")
    inputs, outputs = (tuple(map(_widened, tensors)) for tensors in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs), engine_file(graph, name)


def _widened(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype="float32") if tensor.dtype == "bfloat16" else tensor
