"""Reduction of a failing graph by cutting nodes, without TensorRT: here a graph fails if it has certain operators."""

import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from speccompile.compiler.diagnose.children import run_python
from speccompile.compiler.diagnose.reduce_nodes import cut, part

SHAPE = [2, 3]


def chain(operators: list[str]) -> onnx.ModelProto:
    """Return a model that applies operators to x in turn. "Add" adds x or a constant; "Odd" is in no opset."""
    nodes, infos, last = [], [], "x"
    for index, operator in enumerate(operators):
        inputs = [last, "one" if index % 2 else "x"] if operator == "Add" else [last]
        nodes.append(helper.make_node(operator, inputs, [f"v{index}"], f"node{index}"))
        last = f"v{index}"
        if "Odd" not in operators[: index + 1]:
            infos.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, SHAPE))
    body = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(numpy_helper.to_array(helper.make_tensor("one", 1, [1], [1.0])), "one")],
        value_info=[info for info in infos if info.name != last],
    )  # fmt: skip
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def fails_with(*operators: str):
    def fails(model: onnx.ModelProto) -> bool:
        return set(operators) <= {node.op_type for node in model.graph.node}

    return fails


@pytest.mark.parametrize(
    ("operators", "needed"),
    [
        (["Relu"] * 20 + ["Sqrt"] + ["Relu"] * 20, ["Sqrt"]),
        (["Sqrt"] + ["Relu"] * 30 + ["Exp"], ["Sqrt", "Exp"]),
        (["Relu", "Add", "Relu", "Add", "Sqrt"], ["Add", "Sqrt"]),
        (["Relu"] * 3 + ["Odd"] + ["Relu"] * 5, ["Odd"]),
        (["Sqrt"], ["Sqrt"]),
    ],
)
def test_only_what_fails_is_left(operators, needed):
    left = cut(chain(operators), fails_with(*needed))
    assert sorted(node.op_type for node in left.graph.node) == sorted(needed)


def test_what_is_left_is_a_graph():
    model = chain(["Relu", "Sqrt", "Exp", "Add", "Relu"])
    left = part(model, [1, 3])
    onnx.checker.check_model(left, full_check=True)
    assert [value.name for value in left.graph.input] == ["v0", "v2"]
    assert [value.name for value in left.graph.output] == ["v1", "v3"]
    assert [weight.name for weight in left.graph.initializer] == ["one"]
    assert left.opset_import == model.opset_import


def test_an_output_that_is_read_stays_an_output():
    model = chain(["Relu", "Sqrt"])
    model.graph.output.append(helper.make_tensor_value_info("v0", TensorProto.FLOAT, SHAPE))
    assert [value.name for value in part(model, [0, 1]).graph.output] == ["v0", "v1"]


@pytest.mark.parametrize("kind", ["no type", "no shape", "a size that varies", "a type without a network input"])
def test_what_cannot_be_an_input_is_not_cut_off(kind):
    model = chain(["Relu", "Sqrt"])
    (info,) = model.graph.value_info
    if kind == "no type":
        del model.graph.value_info[:]
    elif kind == "no shape":
        info.type.tensor_type.ClearField("shape")
    elif kind == "a size that varies":
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    else:
        info.type.tensor_type.elem_type = TensorProto.INT4
    assert part(model, [1]) is None
    assert part(model, [0]) is not None


def test_a_child_runs_no_module_of_its_folder(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    assert run_python("-c", "import json", seconds=60, folder=tmp_path).returncode == 0
