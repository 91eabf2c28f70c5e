"""`scripts/graphs.py`: what it calls equal, and the differences that it names."""

import onnx
import pytest
from onnx.parser import parse_model

from scripts.graphs import compare

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { sum = Add (x, w)  y = Relu (sum) }"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TEXT, "equal"),
        (TEXT.replace("sum", "total").replace("w", "weight"), "equal but for names"),
        (TEXT.replace("Relu", "Neg"), "differs: -1 onnx::Neg, +1 onnx::Relu"),
        (
            TEXT.replace("(x, w)", "(w, x)"),
            "differs: the same nodes and weights, in another order or with other attributes",
        ),
        (TEXT.replace("[2]", "[3]").replace("2}", "2, 3}"), "differs: +1 weight FLOAT[2], -1 weight FLOAT[3]"),
        (TEXT.replace("float", "double"), "differs: -1 weight DOUBLE[2], +1 weight FLOAT[2]"),
    ],
)
def test_differences_are_named(tmp_path, text, found):
    for name, content in (("ours", TEXT), ("theirs", text)):
        model = parse_model(content)
        model.producer_version = name
        model.graph.node[0].doc_string = name
        onnx.save(model, tmp_path / name)
    assert compare(tmp_path / "ours", tmp_path / "theirs") == found


CALL = """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
g (float[2] x) => (float[2] y) { y = own.Outer (x) }
<domain: "own", opset_import: ["" : 20, "own" : 1]> Outer (a) => (b) { b = own.Inner (a) }
<domain: "own", opset_import: ["" : 20]> Inner (a) => (b) { b = Neg (a) }
"""
UNUSED = '<domain: "own", opset_import: ["" : 20]> Unused (a) => (b) { b = Abs (a) }\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [(CALL + UNUSED, "equal"), (CALL.replace("Neg", "Relu"), "differs: +1 onnx::Neg in Inner, -1 onnx::Relu in Inner")],
)
def test_functions_that_are_called_are_compared(tmp_path, text, found):
    onnx.save(parse_model(CALL), tmp_path / "ours")
    onnx.save(parse_model(text), tmp_path / "theirs")
    assert compare(tmp_path / "ours", tmp_path / "theirs") == found


def test_a_graph_of_one_side_alone(tmp_path):
    onnx.save(parse_model(TEXT), tmp_path / "ours")
    assert compare(tmp_path / "ours", tmp_path / "none") == "only here"
    assert compare(tmp_path / "none", tmp_path / "ours") == "only there"
