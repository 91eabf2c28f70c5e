"""Lowered graphs of a few kilobytes, as a lowering writes them: a cache updated in place, weights in a file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from speccompile.compiler.engines import Settings, make_settings
from speccompile.contract import Graph, Tensor

WEIGHTS = "target.weights"
ROWS, HEADS, SIZE, VOCABULARY = 32, 2, 4, 64
FLOATS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}

Change = Callable[[onnx.ModelProto], Any]


@dataclass(frozen=True)
class Tiny:
    """A graph of the contract and the ONNX file that was lowered from it."""

    graph: Graph
    onnx: Path

    def settings(self, compute_capability: str = "8.9", **changes: Any) -> Settings:
        words = {"target": changes.pop("precision", "float32")}
        sizes = {"tokens": 3, "catch_up": 2, "prefill_chunk": 8, "max_length": 64}
        options = {"backend": "tensorrt_rtx"} | sizes | changes
        return make_settings(self.graph, compute_capability=compute_capability, precision=words, **options)


def contract_graph(dtype: str = "float32") -> Graph:
    cache = (1, HEADS, ROWS, SIZE)
    inputs = (
        Tensor("window", "int64", (1, "window"), "window", "io"),
        Tensor("length", "int64", (1,), "length", "io"),
        Tensor("target.key.0", dtype, cache, "target.key.0", "state"),
    )
    outputs = (
        Tensor("path", "int64", (1, "window"), "path", "io"),
        Tensor("target.key.0.out", dtype, cache, "target.key.0", "state"),
    )
    return Graph("verify", inputs, outputs)


def write(folder: Path, *, dtype: str = "float32", name: str = "verify.engine", change: Change | None = None) -> Tiny:
    """Write `<name>.onnx` and its weights into a folder; `change` is made to the model before."""
    folder.mkdir(parents=True, exist_ok=True)
    model = _model(dtype)
    if change is not None:
        change(model)
    path = folder / f"{name}.onnx"
    (folder / WEIGHTS).unlink(missing_ok=True)  # the library would append to it
    onnx.save(model, path, save_as_external_data=True, location=WEIGHTS, size_threshold=256)
    return Tiny(contract_graph(dtype), path)


def _model(dtype: str) -> onnx.ModelProto:
    """Return a model: window -> embedding -> keys into the cache at `length`, and the argmax over the vocabulary."""
    width, kind = HEADS * SIZE, FLOATS[dtype]
    constants = [
        _weights("embedding", kind, (VOCABULARY, width)),
        _weights("head", kind, (width, VOCABULARY)),
        numpy_helper.from_array(np.array([1, -1, HEADS, SIZE]), "split"),
    ]
    nodes = [
        helper.make_node("Gather", ["embedding", "window"], ["hidden"], "embed"),
        helper.make_node("Reshape", ["hidden", "split"], ["rows"], "split_heads"),
        helper.make_node("Transpose", ["rows"], ["keys"], "to_heads", perm=[0, 2, 1, 3]),
        helper.make_node("TensorScatter", ["target.key.0", "keys", "length"], ["target.key.0.out"], "commit", axis=2),
        helper.make_node("MatMul", ["hidden", "head"], ["logits"], "score"),
        helper.make_node("ArgMax", ["logits"], ["path"], "choose", axis=-1, keepdims=0),
    ]
    graph = contract_graph(dtype)
    kinds = FLOATS | {"int64": TensorProto.INT64}

    def infos(tensors: tuple[Tensor, ...]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(each.name, kinds[each.dtype], each.shape) for each in tensors]

    body = helper.make_graph(nodes, "verify", infos(graph.inputs), infos(graph.outputs), constants)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def _weights(name: str, kind: int, shape: tuple[int, int]) -> onnx.TensorProto:
    values = np.random.default_rng(0).standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(kind))
    return helper.make_tensor(name, kind, shape, values.tobytes(), raw=True)


def node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """Return the node of that name."""
    return next(each for each in model.graph.node if each.name == name)


def insert(model: onnx.ModelProto, before: str, nodes: list[onnx.NodeProto]) -> None:
    """Put nodes before the node of that name, which then reads the output of the last one."""
    index = [each.name for each in model.graph.node].index(before)
    model.graph.node[index].input[0] = nodes[-1].output[0]
    following = list(model.graph.node)[index:]
    del model.graph.node[index:]
    model.graph.node.extend([*nodes, *following])


def slow(model: onnx.ModelProto) -> None:
    """Give the builder work for several seconds."""
    nodes, last = [], "hidden"
    for index in range(200):
        nodes.append(helper.make_node("Softmax", [last], [f"soft{index}"], f"soft{index}"))
        nodes.append(helper.make_node("Add", [f"soft{index}", "hidden"], [f"sum{index}"], f"sum{index}"))
        last = f"sum{index}"
    insert(model, "score", nodes)


def plant(node_type: str, **attributes):
    """Put a node named "planted" of that type where the graph scores its hidden values."""

    def change(model: onnx.ModelProto) -> None:
        insert(model, "score", [helper.make_node(node_type, ["hidden"], ["found"], "planted", **attributes)])
        if attributes:
            model.opset_import.append(helper.make_opsetid(attributes["domain"], 1))

    return change
