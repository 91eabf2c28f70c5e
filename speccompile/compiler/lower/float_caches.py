"""A lowered graph with float caches in place of codes and scales: what acceptance is compared with."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from speccompile.bundle.caches import scale_name
from speccompile.compiler.lower import neutral_codes
from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.chain_kernels import unchain_kernels
from speccompile.contract import Dimension, Graph, Tensor, is_scale


def float_twin(graph: Graph, file: str, folder: Path) -> tuple[Graph, str]:
    """Write the graph with float caches, over the same weights, and return it with its file in `folder`; the arguments
    if it has no quantized caches. Scales stay, and nothing reads them."""
    if not any(_is_cache(tensor) for tensor in graph.inputs):
        return graph, file
    path = folder / Path(file).with_suffix(".float-caches.onnx")
    halves = {tensor.buffer for tensor in graph.inputs if is_scale(tensor.buffer) and tensor.shape[-1] == 2}

    def floats(tensor: Tensor) -> Tensor:
        if not _is_cache(tensor):
            return tensor
        *rows, width = tensor.shape
        whole = int(width) * (2 if scale_name(tensor.buffer) in halves else 1)
        return replace(tensor, dtype="float32", shape=(*rows, whole))

    inputs, outputs = (tuple(map(floats, tensors)) for tensors in (graph.inputs, graph.outputs))
    model = ir.load(folder / file)
    unchain_kernels(model)
    read_floats(model, {tensor.name: tensor.shape[-1] for tensor in (*inputs, *outputs) if tensor.role == "state"})
    ir.save(model, path)
    return Graph(graph.name, inputs, outputs), path.relative_to(folder).as_posix()


def read_floats(model: ir.Model, widths: Mapping[str, Dimension]) -> int:
    """Before: codes, scales = Encode..(rows); AttendInt8(query, key codes, scales, value codes, scales, ..); caches of
    codes.

    After: Attend(query, key rows, value rows, ..), and caches of rows, float32. Return the number of attentions.
    widths: of rows of the inputs and outputs that hold caches, by name.
    """
    for op, decode in neutral_codes.CODE_OPS.items():
        for node in [node for node in model.graph if (node.domain, node.op_type) == (DOMAIN, op)]:
            rows = node.inputs[0]
            assert rows is not None
            ir.convenience.replace_all_uses_with(node.outputs[0], rows)
        rewrite_nodes(model, DOMAIN, decode, _keep_rows)
    fired = 0
    for kernels in neutral_codes.CODE_ATTENDS.values():
        for floats, op in kernels.items():
            fired += rewrite_nodes(model, DOMAIN, op, partial(_attend, floats))
    _retype(model.graph, widths)
    add_functions(model)
    return fired


def _keep_rows(nodes: Nodes, node: ir.Node) -> ir.Value:
    assert node.inputs[0] is not None
    return nodes("Identity", node.inputs[0])


def _attend(op: str, nodes: Nodes, node: ir.Node) -> ir.Value:
    query, *rest = node.inputs
    settings = {name: attribute.value for name, attribute in node.attributes.items()}
    return nodes(op, query, *rest[0:8:2], *rest[8:], domain=DOMAIN, **settings)


def _retype(graph: ir.Graph, widths: Mapping[str, Dimension]) -> None:
    """Give the caches, and values computed from them, float32. Weights in eight bits stay: only caches are inputs."""
    changed = {value for value in graph.inputs if value.dtype == ir.DataType.INT8}
    encoders = {node for node in graph if node.domain == DOMAIN and node.op_type in neutral_codes.CODE_OPS}
    begun = changed | {value for node in encoders for value in node.inputs}
    for node in graph:
        if node not in encoders and begun.intersection(node.inputs):
            found = {value for value in node.outputs if value.dtype == ir.DataType.INT8}
            begun, changed = begun | found, changed | found
    named = {*graph.inputs, *graph.outputs}
    for value in changed:
        value.type = ir.TensorType(ir.DataType.FLOAT)
        shape = value.shape if value in named else None
        value.shape = None if shape is None else ir.Shape([*list(shape)[:-1], widths[value.name or ""]])


def _is_cache(tensor: Tensor) -> bool:
    return tensor.role == "state" and tensor.dtype == "int8"
