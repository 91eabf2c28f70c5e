"""Products with weights that a lowering left to ONNX Runtime are found, and nothing else is."""

import onnx
import onnx.parser
import pytest

from scripts.architectures.loose_products import loose_products

WEIGHT = "<float[2, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, int64 one = {1}>"
GRAPHS = {
    "right": ("y = MatMul(x, w)", ["MatMul w"]),
    "turned": ("t = Transpose<perm = [0, 2, 1]>(w)  y = MatMul(x, t)", ["MatMul w"]),
    "left": ("m = Gather<axis = 0>(w, one)  y = MatMul(m, x)", ["MatMul w"]),
    "kernel": ("y = speccompile.native.Product(x, w)", []),
    "activations": ("z = Mul(x, w)  y = MatMul(x, z)", []),
}
"""Name -> nodes, and the products that are left."""


@pytest.mark.parametrize("name", GRAPHS)
def test_products_with_weights_are_found(name, tmp_path):
    nodes, expected = GRAPHS[name]
    opsets = '"" : 23, "speccompile.native" : 1'
    text = (
        f"<ir_version: 10, opset_import: [{opsets}]> g (float[2, 3, 3] x) => (float[2, 3, 3] y) {WEIGHT} {{ {nodes} }}"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "verify.onnx")
    assert loose_products(tmp_path / "verify.onnx") == expected
