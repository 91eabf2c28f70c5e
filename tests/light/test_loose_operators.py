"""Operators that a lowering left to ONNX Runtime, and that depend on the window, are found, and nothing else is."""

import onnx
import onnx.parser
import pytest

from scripts.architectures.loose_operators import loose_operators

WEIGHT = "<float[2, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, int64 one = {1}>"
GRAPHS = {
    "right": ("y = MatMul(x, w)", ["MatMul w"]),
    "turned": ("t = Transpose<perm = [0, 2, 1]>(w)  y = MatMul(x, t)", ["MatMul w"]),
    "left": ("m = Gather<axis = 0>(w, one)  y = MatMul(m, x)", ["MatMul w"]),
    "kernel": ("y = speccompile.native.Product(x, w)", []),
    "activations": ("z = Mul(x, w)  y = MatMul(x, z)", []),
    "sum": ("z = Mul(x, w)  s = ReduceSum(z, one)  y = Add(x, s)", ["ReduceSum s"]),
    "count": ("m = Less(x, w)  z = Cast<to = 1>(m)  s = ReduceSum(z, one)  y = Add(x, s)", []),
    "curve": ("z = Mul(x, w)  y = Sin(z)", ["Sin y"]),
    "curve of a weight": ("z = Sin(w)  y = Mul(x, z)", []),
    "elements": ("z = Mul(x, w)  s = Softmax(z)  y = Sigmoid(s)", []),
}
"""Name -> nodes, and the operators that are found."""


@pytest.mark.parametrize("name", GRAPHS)
def test_what_depends_on_the_window_is_found(name, tmp_path):
    nodes, expected = GRAPHS[name]
    opsets = '"" : 23, "speccompile.native" : 1'
    text = (
        f"<ir_version: 10, opset_import: [{opsets}]> g (float[2, 3, 3] x) => (float[2, 3, 3] y) {WEIGHT} {{ {nodes} }}"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "verify.onnx")
    assert loose_operators(tmp_path / "verify.onnx") == expected
