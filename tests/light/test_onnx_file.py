"""The little of ONNX's format that the runtime reads and writes, beside the onnx package."""

import onnx
import pytest
from onnx import TensorProto, helper

from speccompile.runtime.devices.onnx_file import PlaceholderInitializer, external_data, with_carriers


def tensor(name: str, **entries: str) -> TensorProto:
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[300, 2], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        made.external_data.add(key=key, value=value)
    return made


def model() -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])]
    inside = helper.make_tensor("inside", TensorProto.DOUBLE, [2], [1.5, 2.5])
    # attributes of every kind, so that fields are written in every way; and lengths of more than seven bits
    attributes = {"alpha": 1.5, "beta": -7, "names": ["a", "b"], "floats": [1.0]}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="m" * 200, **attributes)]
    weights = [tensor("w", location="target.weights", offset="4096", length="2400"), inside]
    weights.append(tensor("v", location="größe.weights", offset="0", length="2400", prepacked_0="MatMul+1|4096;8;0"))
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights), producer_version="1" * 300)


def test_where_initializers_lie():
    assert list(external_data(model().SerializeToString())) == [
        {"location": "target.weights", "offset": "4096", "length": "2400"},
        {"location": "größe.weights", "offset": "0", "length": "2400", "prepacked_0": "MatMul+1|4096;8;0"},
    ]
    assert list(external_data(onnx.ModelProto(ir_version=10).SerializeToString())) == []


def test_initializers_are_moved_and_carriers_added():
    packed = {"a/1": "MatMul+1|0;5;0", "a/2": "x|0;6;0|4096;7;0"}
    carriers = [PlaceholderInitializer(location.encode(), {"prepacked_0": text}) for location, text in packed.items()]
    made = onnx.ModelProto.FromString(
        with_carriers(model().SerializeToString(), lambda location: b"bundle/" + location, carriers)
    )
    expected = model()
    for each in expected.graph.initializer:
        for entry in each.external_data:
            if entry.key == "location":
                entry.value = f"bundle/{entry.value}"
    for index, (location, text) in enumerate(packed.items()):
        name = f"packed.{index}"
        carrier = tensor(name, location=location, offset="0", length="1", prepacked_0=text)
        carrier.data_type, carrier.dims[:] = TensorProto.UINT8, [1]
        expected.graph.initializer.append(carrier)
        expected.graph.output.append(helper.make_tensor_value_info(name, TensorProto.UINT8, [1]))
    assert made == expected


def test_a_model_without_carriers_is_as_it_was():
    serialized = model().SerializeToString()
    assert with_carriers(serialized, lambda location: location, []) == serialized


def test_what_is_no_model():
    with pytest.raises(ValueError, match="no ONNX model: a field is written in the way 7"):
        list(external_data(b"\x0f"))
