"""Short cuts of a build read what the long way reads: the exporter's registry, its tables, signatures of operators, and
the weight files of a graph."""

from typing import Any

import numpy as np
import onnx.defs
import onnx_ir as ir
import torch
from onnx_ir.schemas import OpSignature
from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp
from torch.onnx._internal.exporter._decomp import create_onnx_friendly_decomposition_table
from torch.onnx._internal.exporter._registration import ONNXRegistry

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.decompose import _tables, quick_translation
from speccompile.compiler.lower.files import weights_of


def described(registry: ONNXRegistry) -> dict[Any, list[Any]]:
    """Return operator -> what the exporter knows of each of its translations."""
    return {
        target: [(each.onnx_function, repr(each.signature), each.is_complex, each.opset_introduced) for each in found]
        for target, found in registry.functions.items()
    }


def test_the_registry_is_torch_s_own():
    own = ONNXRegistry.from_torchlib(opset_version=neutral.OPSET)
    with quick_translation():
        quick = ONNXRegistry.from_torchlib(opset_version=neutral.OPSET)
    assert len(own.functions) > 300
    assert described(quick) == described(own)
    assert quick.opset_version == own.opset_version


def test_signatures_are_those_of_each_version_of_an_operator():
    names = ("Add", "Cast", "Reshape", "ReduceSum", "Concat", "TensorScatter")
    schemas = [each for each in onnx.defs.get_all_schemas_with_history() if each.name in names]
    own = [repr(OpSignature.from_op_schema(each)) for each in schemas]
    assert len({each.since_version for each in schemas if each.name == "Cast"}) > 4
    with quick_translation():
        assert [repr(OpSignature.from_op_schema(each)) for each in schemas] == own
        assert OpSignature.from_op_schema(schemas[0]) is OpSignature.from_op_schema(schemas[0])


def test_the_tables_of_decompositions_are_torch_s_own():
    translated = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.linear.default})
    table = create_onnx_friendly_decomposition_table(set(translated))
    own = (table, *_split_decomp_table_to_cia_and_python_decomp(dict(table)))
    assert [each.keys() for each in _tables(translated, 0)] == [each.keys() for each in own]
    assert len(own[1]) > 100


def test_weight_files_are_those_that_a_graph_names(tmp_path):
    tensors = {
        name: ir.tensor(np.full(size, 1.0, np.float32), name=name) for name, size in (("a", 9), ("b", 8), ("c", 1))
    }
    stored = {
        name: ir.external_data.convert_tensors_to_external([tensors[name]], tmp_path, f"{name}.weights")[0]
        for name in ("a", "b")
    }
    values = [ir.Value(name=name, const_value=stored.get(name, tensor)) for name, tensor in tensors.items()]
    graph = ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 24})
    ir.save(ir.Model(graph, ir_version=10), tmp_path / "graph.onnx")
    assert weights_of(tmp_path / "graph.onnx") == {"a.weights", "b.weights"}
