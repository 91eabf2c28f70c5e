"""Quantization on small graphs: the quantized weights, their formats, and outputs near those of before."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from speccompile.compiler.lower.quantize import numpy_quantizers, quantize
from speccompile.compiler.lower.quantize.gemm import split_gemm
from speccompile.compiler.lower.quantize.linear import find_linears

LAYERS = """(float[1, T, 64] x) => (float[1, T, 40] logits) {
    a = MatMul(x, up)  b = Relu(a)  c = MatMul(b, down)  h = Add(x, c)  logits = MatMul(h, head) }"""
SIZES = {"up": (64, 96), "down": (96, 64), "head": (64, 40)}
RANGES = {"x": (-4.0, 4.0), "b": (0.0, 4.5), "h": (-6.0, 6.0)}


def normal(*shape: int) -> np.ndarray:
    found = np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape, np.float32)
    return found / np.float32(np.sqrt(shape[-2]))


def graph(text: str = LAYERS, sizes: dict[str, tuple[int, ...]] = SIZES) -> onnx.ModelProto:
    """Return a model from onnx's text form, with random weights of these sizes."""
    model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 24]> graph {text}')
    weights = [onnx.numpy_helper.from_array(normal(*size), name) for name, size in sizes.items()]
    model.graph.initializer.extend(weights)
    return onnx.shape_inference.infer_shapes(model)


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph if node.op_type != "Constant")


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """Run by onnxruntime, without its optimizations: it must not quantize other activations, nor leave out a Relu in
    front of numbers that have a sign (both measured)."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"], disabled_optimizers=["ReluQuantRewrite"]
    )
    return session.run(None, feeds)[0]


def error(model: ir.Model, before: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """Return the largest difference from the float graph, relative to its largest value."""
    expected = ReferenceEvaluator(before).run(None, feeds)[0]
    onnx.checker.check_model(after := ir.to_proto(model))
    return float(np.abs(run(after, feeds) - expected).max() / np.abs(expected).max())


X = {"x": np.random.default_rng(0).standard_normal((1, 5, 64), np.float32)}


@pytest.mark.parametrize(("word", "block", "bits", "tolerance"), [("int4", 64, 4, 0.15), ("int8", 0, 8, 0.02)])
def test_matmul_nbits(word, block, bits, tolerance):
    before = graph()
    report = quantize(model := ir.from_proto(before), word, block, "matmul_nbits")
    nodes = [node.attributes for node in model.graph if node.op_type == "MatMulNBits"]
    assert ops(model) == {"MatMulNBits": 3, "Relu": 1, "Add": 1}
    assert [each["bits"].as_int() for each in nodes] == [bits, bits, 8]
    assert [each["block_size"].as_int() for each in nodes] == [block or 32, block or 32, 32]
    names = {"up", "down", "head"}
    assert report.quantized.keys() == names
    assert not report.left
    assert not names & model.graph.initializers.keys()
    assert 0 < error(model, before, X) < tolerance


@pytest.mark.parametrize(
    ("word", "block", "formats", "tolerance"),
    [
        ("int4", 32, ["int4 in blocks of 32", "int4 in blocks of 32", "int8 by column"], 0.15),
        ("int8", 0, ["int8 by column"] * 3, 0.01),
        ("w8a8", 0, ["int8 by column"] * 3, 0.03),
        ("fp8", 0, ["float8e4m3fn by column"] * 3, 0.1),
    ],
)
def test_qdq(word, block, formats, tolerance):
    before = graph()
    report = quantize(model := ir.from_proto(before), word, block, "qdq", RANGES)
    assert list(report.quantized.values()) == formats
    assert not report.left
    found = ops(model)
    activations = 3 if word in ("w8a8", "fp8") else 0
    assert (found["MatMul"], found["QuantizeLinear"], found["DequantizeLinear"]) == (3, activations, 3 + activations)
    assert 0 < error(model, before, X) < tolerance
    np.testing.assert_allclose(
        run(ir.to_proto(model), X), ReferenceEvaluator(ir.to_proto(model)).run(None, X)[0], atol=1e-4
    )


@pytest.mark.parametrize(
    ("block", "rows", "expected"),
    [
        (128, 128, "int4 in blocks of 128"),
        (128, 192, "int4 in blocks of 64"),
        (64, 480, "int4 in blocks of 32"),
        (32, 48, "int4 in blocks of 16"),
        (32, 40, "int8 by column"),
    ],
)
def test_blocks_divide_a_weight(block, rows, expected):
    """TensorRT divides 480 rows by the 8 scales of blocks of 64, finds blocks of 60, and says nothing."""
    text = f"""(float[T, {rows}] x) => (float[T, 24] y) {{ h = MatMul(x, w)  y = MatMul(h, head) }}"""
    before = graph(text, {"w": (rows, 24), "head": (24, 24)})
    report = quantize(model := ir.from_proto(before), "int4", block, "qdq")
    assert report.quantized["w"] == expected
    assert error(model, before, {"x": normal(3, rows)}) < 0.25


TIED = """(int64[T] ids) => (float[T, 50] logits, int64[T] next) <int64[2] order = {1, 0}> {
    x = Gather(table, ids)  h = MatMul(x, w)  turned = Transpose<perm = [1, 0]>(table)  logits = MatMul(h, turned)
    next = ArgMax<axis = -1, keepdims = 0>(logits) }"""


@pytest.mark.parametrize("form", ["matmul_nbits", "qdq"])
def test_a_tied_head_is_a_quantized_copy(form):
    before = graph(TIED.replace("<int64[2] order = {1, 0}>", ""), {"table": (50, 32), "w": (32, 32)})
    report = quantize(model := ir.from_proto(before), "int8", 0, form)
    assert report.quantized.keys() == {"w", "table.T"}
    assert report.left == {"table": "read by Gather"}
    assert error(model, before, {"ids": np.arange(7)}) < 0.02


PASSES = """(int64[1] ids) => (int64[1] third) {
    x = Gather(table, ids)  h = MatMul(x, w)  score = MatMul(h, head)  next = ArgMax<axis = 1, keepdims = 0>(score)
    x2 = Gather(table, next)  h2 = MatMul(x2, w)  score2 = MatMul(h2, head)
    third = ArgMax<axis = 1, keepdims = 0>(score2) }"""


@pytest.mark.parametrize("form", ["matmul_nbits", "qdq"])
def test_the_passes_of_a_drafter_share_their_weights(form):
    model = ir.from_proto(graph(PASSES, {"table": (50, 32), "w": (32, 32), "head": (32, 50)}))
    assert [linear.role for linear in find_linears(model.graph)] == ["layer", "head"] * 2
    report = quantize(model, "int4", 32, form)
    assert report.quantized.keys() == {"w", "head"}
    # numbers and scales of two weights, zero points of 4 bits, and the table
    assert len(model.graph.initializers) == 5 + (form != "qdq")
    assert ops(model)["DequantizeLinear"] == (2 if form == "qdq" else 0)


EXPERTS = """(float[T, 32] x) => (float[T, 24] y) {
    scores = Gemm<transB = 1>(x, gate, bias)  one = Constant<value_ints = [1]>()
    best, chosen = TopK(scores, one)  gain = Sigmoid(best)
    zero = Constant<value_int = 0>()  first = Gather<axis = 0>(experts, zero)  a = MatMul(x, first)
    second = Gather<axis = 0>(experts, two)  b = MatMul(x, second)
    sum = Add(a, b)  z = Mul(gain, sum)  y = MatMul(z, head) }"""
EXPERT_SIZES = {"gate": (4, 32), "bias": (1, 4), "experts": (4, 32, 32), "head": (32, 24)}


def experts() -> onnx.ModelProto:
    model = graph(EXPERTS, EXPERT_SIZES)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "two"))
    return model


@pytest.mark.parametrize("form", ["matmul_nbits", "qdq"])
def test_experts_are_quantized_and_their_router_is_not(form):
    before = experts()
    report = quantize(model := ir.from_proto(before), "int8", 0, form)
    assert report.quantized.keys() == {"experts.0", "experts.2", "head"}
    assert report.left == {"gate.T": "chooses experts", "bias": "read by Add"}
    assert error(model, before, {"x": normal(6, 32)}) < 0.03


def test_an_activation_without_a_range_is_left():
    before = graph()
    ranges = RANGES | {"b": (float("inf"), float("-inf"))}
    report = quantize(model := ir.from_proto(before), "w8a8", 0, "qdq", ranges)
    assert report.left == {"down": "no prompt of the calibration reached it"}
    assert ops(model)["QuantizeLinear"] == 2
    assert error(model, before, X) < 0.03


def test_an_activation_that_several_layers_read_is_quantized_once():
    text = "(float[T, 64] x) => (float[T, 8] y) { q = MatMul(x, a)  k = MatMul(x, b)  s = Add(q, k)  y = MatMul(s, c) }"
    model = ir.from_proto(graph(text, {"a": (64, 32), "b": (64, 32), "c": (32, 8)}))
    quantize(model, "fp8", 0, "qdq", {"x": (-1, 1), "s": (-1, 1)})
    assert ops(model)["QuantizeLinear"] == 2


GEMM = "(float[T, 8] x) => (float[T, 6] y) {{ y = Gemm<{}>(x, w{}) }}"


@pytest.mark.parametrize(
    ("attributes", "bias", "expected"),
    [("transB = 0", ", b", {"MatMul": 1, "Add": 1}), ("transB = 1", ", b", {"Transpose": 1, "MatMul": 1, "Add": 1}),
     ("transB = 1", "", {"Transpose": 1, "MatMul": 1}), ("alpha = 2.0", ", b", {"Gemm": 1})],
)  # fmt: skip
def test_split_gemm(attributes, bias, expected):
    sizes = {"w": (6, 8) if "transB = 1" in attributes else (8, 6), "b": (1, 6)}
    before = graph(GEMM.format(attributes, bias), sizes)
    model = ir.from_proto(before)
    assert split_gemm(model) == ("Gemm" not in expected)
    assert ops(model) == expected
    assert error(model, before, {"x": normal(3, 8)}) < 1e-6


def test_weights_are_quantized_when_they_are_written(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        numpy_quantizers, "numbers", lambda weight, *_: calls.append(1) or np.zeros(weight.shape, np.int8)
    )
    quantize(model := ir.from_proto(graph()), "int8", 0, "qdq")
    assert not calls
    ir.save(model, tmp_path / "model.onnx", external_data="weights", size_threshold_bytes=256)
    assert len(calls) == 3
    assert sum(SIZES[name][0] * SIZES[name][1] for name in SIZES) <= (tmp_path / "weights").stat().st_size


def test_the_report_for_people():
    report = quantize(ir.from_proto(experts()), "int4", 32, "qdq")
    assert report.lines() == [
        "2 weights: int4 in blocks of 32",
        "1 weight: int8 by column",
        "1 left (chooses experts): gate.T",
        "1 left (read by Add): bias",
    ]
