"""Emulation of a graph whose dtype ONNX Runtime's CPU kernels lack. For the proof alone."""

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from speccompile.compiler.lower.files import save
from speccompile.compiler.lower.passes.emulate_bfloat16 import emulate_bfloat16
from speccompile.contract import Graph, Tensor


def stand_in(graph: Graph, file: str, folder: Path) -> tuple[Graph, str]:
    """Return a graph that computes the same, and its file in `folder`; the arguments if ONNX Runtime can run them.

    Every bfloat16 result becomes a float32 one that is rounded to bfloat16, as tensor cores round it.
    """
    if all(tensor.dtype != "bfloat16" for tensor in graph.inputs):
        return graph, file
    path = folder / Path(file).with_suffix(".stand-in.onnx")
    if not path.exists():
        model = ir.load(folder / file)
        emulate_bfloat16(model)
        save(model, path, f"{path.stem}.weights")
    inputs, outputs = (tuple(map(_widened, tensors)) for tensors in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs), path.relative_to(folder).as_posix()


def _widened(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype="float32") if tensor.dtype == "bfloat16" else tensor
