"""Operators that a lowering left to ONNX Runtime, and that depend on the window, are found, and nothing else is."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from scripts.architectures.loose_operators import CURVES, SUMS, loose_operators

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


ELEMENTS = (
    "Abs", "Asinh", "Ceil", "Cosh", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg",
    "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sinh", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu", "Hardmax",
    "Softmax", "LogSoftmax", "LpNormalization",
)  # fmt: skip
ROWS = {
    **{op: f"y = {op}(x)" for op in ELEMENTS},
    **{op: f"z = Neg(x)  y = {op}(x, z)" for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{f"{op} of rows": f"m = {op}(x, last)  y = Add(x, m)" for op in ("ReduceMax", "ReduceMin", "ReduceProd")},
    **{f"Pow {p}": f"z = Abs(x)  p = Constant<value_float = {p}>()  y = Pow(z, p)" for p in (-0.5, 0.5, 1.5, 2.0, 3.0)},
    "Gelu by tanh": 'y = Gelu<approximate = "tanh">(x)',
    "LayerNormalization": "s = Shape<start = 1>(x)  w = ConstantOfShape<value = float[1] {1.25}>(s)  "
    "y = LayerNormalization(x, w)",
    "Cast": "z = Cast<to = 16>(x)  y = Cast<to = 1>(z)",
    "CumSum": "one = Constant<value_int = 1>()  y = CumSum(x, one)",
    "Clip": "low = Constant<value_float = -1.0>()  high = Constant<value_float = 1.0>()  y = Clip(x, low, high)",
}
"""Operators that are left to ONNX Runtime -> nodes that make rows y [R, n] of rows x [R, n]."""


@pytest.mark.parametrize("name", ROWS)
def test_other_operators_give_a_row_equal_bits_on_this_processor(name):
    assert name.split()[0] not in SUMS + CURVES
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[R, n] x) => (float[R, n] y) {{
        last = Constant<value_ints = [-1]>()  {ROWS[name]} }}"""
    model, options = onnx.parser.parse_model(text).SerializeToString(), onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for options.intra_op_num_threads in (1, 2):
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for size in (1, 5, 17, 72, 100, 1001):
            x = np.random.default_rng(size).normal(0, 4, (33, size)).astype(np.float32)
            alone = b"".join(session.run(None, {"x": row[None]})[0].tobytes() for row in x)
            for count in (2, 3, 4, 5, 8, 10, 33):
                (rows,) = session.run(None, {"x": x[:count]})
                assert alone.startswith(rows.tobytes()), (size, count)
