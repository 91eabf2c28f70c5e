"""Linear layers and tables for the kernels: which weights, in which numbers, and that the graph gives nearly what it
gave, with the library and without it."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from speccompile import native
from speccompile.compiler.lower.native import DOMAIN, layouts
from speccompile.compiler.lower.quantize import numpy_quantizers, quantize
from speccompile.compiler.lower.quantize.linear import find_linears
from tests.compile.kernel_runs import KernelRuns, run_bodies
from tests.compile.test_quantize import EXPERT_SIZES, LAYERS, PASSES, SIZES, TIED, X, experts, graph, normal

WORDS = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.02, "int4": 0.15}
"""Precision -> largest error, relative to the largest value."""


def converted(before: onnx.ModelProto, word: str, block: int = 32) -> tuple[ir.Model, dict[str, str]]:
    report = quantize(model := ir.from_proto(before), word, block, "native")
    return model, report.quantized


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph if node.op_type != "Constant")


def error(model: ir.Model, before: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """Return the largest difference of the first output from the float graph's, relative to its largest value."""
    expected = ReferenceEvaluator(before).run(None, feeds)[0]
    onnx.checker.check_model(after := ir.to_proto(model))
    found = [run_bodies(after, feeds)[0], *([KernelRuns(after).run(feeds)[0]] if native.library() else [])]
    return max(float(np.abs(got - expected).max() / np.abs(expected).max()) for got in found)


@pytest.mark.parametrize(("word", "tolerance"), WORDS.items())
def test_every_precision(word, tolerance):
    before = graph()
    model, formats = converted(before, word)
    head = {"int4": "Int8", "int8": "Int8", "bfloat16": "BFloat16", "float32": "Float32"}[word]
    layer = {"int4": "Int4"}.get(word, head)
    assert ops(model) == Counter([f"Linear{layer}"] * 2 + [f"Linear{head}", "Relu", "Add"])
    texts = {"int8": "int8 by column", "int4": "4 bits in blocks of 32"}
    assert [formats[name] for name in ("up", "down")] == [texts.get(word, word)] * 2
    assert formats["head"] == {"int4": "int8 by column"}.get(word, texts.get(word, word))
    assert not set(SIZES) & model.graph.initializers.keys()
    assert error(model, before, X) < tolerance


@pytest.mark.parametrize("block", [64, 128])
def test_larger_blocks(block):
    before = graph()
    model, formats = converted(before, "int4", block)
    assert formats["down"] == f"4 bits in blocks of {block}"
    assert error(model, before, X) < 0.2


BESIDE = """(float[1, T, 64] x) => (float[1, T, 48] y, float[1, T, 8] s) {
    q = MatMul(x, a)  k = MatMul(x, b)  v = MatMul(x, c)  q_sum = Add(q, q_bias)  v_sum = Add(v_bias, v)
    y = Concat<axis = -1>(q_sum, k, v_sum)  s = MatMul(y, head) }"""
BESIDE_SIZES = {"a": (64, 24), "b": (64, 8), "c": (64, 16), "head": (48, 8)}


def beside() -> onnx.ModelProto:
    model = graph(BESIDE, BESIDE_SIZES)
    biases = {"q_bias": np.linspace(-1, 1, 24), "v_bias": np.linspace(2, 3, 16)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(bias.astype(np.float32), name) for name, bias in biases.items()
    )
    return model


@pytest.mark.parametrize(("word", "tolerance"), WORDS.items())
def test_layers_that_read_the_same_are_one_node(word, tolerance):
    """Lay their weights side by side, and add the biases of some of them there."""
    before = beside()
    model, formats = converted(before, word)
    assert ops(model)["Slice"] == 3
    assert ops(model)["Add"] == 0
    assert sum(count for op, count in ops(model).items() if op.startswith("Linear")) == 2
    assert formats.keys() == BESIDE_SIZES.keys()
    (bias,) = [value.const_value for name, value in model.graph.initializers.items() if name == "a+b+c.bias"]
    np.testing.assert_array_equal(
        bias.numpy(), np.concatenate([np.linspace(-1, 1, 24), np.zeros(8), np.linspace(2, 3, 16)]).astype(np.float32)
    )
    assert error(model, before, X) < tolerance


def test_a_sum_that_is_no_bias_stays():
    text = """(float[1, T, 64] x) => (float[1, T, 96] y, float[1, T, 96] z) {
        a = MatMul(x, up)  z = Relu(a)  y = Add(a, row) }"""
    before = graph(text, {"up": (64, 96), "row": (1, 96)})
    model, _ = converted(before, "float32")
    assert ops(model) == {"LinearFloat32": 1, "Relu": 1, "Add": 1}


@pytest.mark.parametrize(("word", "tolerance"), WORDS.items())
def test_a_tied_head_reads_the_numbers_of_its_table(word, tolerance):
    before = graph(TIED.replace("<int64[2] order = {1, 0}>", ""), {"table": (50, 32), "w": (32, 32)})
    model, formats = converted(before, word)
    assert formats.keys() == {"w", "table.T", "table"}
    found = ops(model)
    (embed,) = [op for op in found if op.startswith("Embed")]
    assert embed.removeprefix("Embed") == {"int4": "Int8", "bfloat16": "BFloat16"}.get(word, word.capitalize())
    stored = [value.const_value for name, value in model.graph.initializers.items() if name.startswith("table")]
    assert sum(tensor.shape.rank() > 2 for tensor in stored) == 1
    assert error(model, before, {"ids": np.arange(7)}) < tolerance


@pytest.mark.parametrize(
    ("word", "table"), [("float32", "Gather"), ("bfloat16", "Gather"), ("int8", "EmbedInt8"), ("int4", "EmbedInt8")]
)
def test_a_table_that_no_head_reads(word, table):
    before = graph(
        "(int64[T] ids) => (float[T, 50] y) { x = Gather(table, ids)  y = MatMul(x, head) }",
        {"table": (50, 32), "head": (32, 50)},
    )
    model, _ = converted(before, word)
    assert ops(model)[table] == 1
    assert ops(model)["Cast"] == (word == "bfloat16")
    assert error(model, before, {"ids": np.arange(7)}) < WORDS[word]


def test_a_table_of_positions_stays_as_it_is():
    text = """(int64[T] ids, int64[T] places) => (float[T, 50] logits) {
        x = Gather(table, ids)  p = Gather(positions, places)  h = Add(x, p)  logits = MatMul(h, head) }"""
    before = graph(text, {"table": (50, 32), "positions": (40, 32), "head": (32, 50)})
    report = quantize(model := ir.from_proto(before), "int8", 0, "native")
    assert report.quantized == {"head": "int8 by column", "table": "int8 by column"}
    assert report.left == {"positions": "read by Gather"}
    assert error(model, before, {"ids": np.arange(7), "places": np.arange(7)}) < 0.03


@pytest.mark.parametrize("word", ["float32", "int8"])
def test_routers_of_experts_stay_float32(word):
    before = experts()
    model, formats = converted(before, word)
    assert formats["gate.T"] == "float32"
    assert ops(model)["LinearFloat32"] == (1 if word == "int8" else 3)  # two of its experts read the same here
    assert error(model, before, {"x": normal(6, EXPERT_SIZES["gate"][1])}) < WORDS[word]


def test_the_passes_of_a_drafter_share_their_weights():
    model = ir.from_proto(graph(PASSES, {"table": (50, 32), "w": (32, 32), "head": (32, 50)}))
    assert [linear.role for linear in find_linears(model.graph)] == ["layer", "head"] * 2
    quantize(model, "int4", 32, "native")
    numbers = [name for name, value in model.graph.initializers.items() if value.dtype == ir.DataType.UINT8]
    assert sorted(numbers) == ["head.int8", "table.T.int8", "w.4bits", "w.4bits.zero_points"]


def test_only_the_functions_that_are_called_are_kept():
    model, _ = converted(graph(LAYERS), "int4")
    assert {name for domain, name, _ in model.functions if domain == DOMAIN} == {"LinearInt4", "LinearInt8"}


@pytest.mark.parametrize("shape", [(5, 3), (64, 16), (100, 40), (130, 33)])
def test_layouts_are_undone(shape):
    """Unpack some columns, and all of them; a part begins with a tile."""
    random, (rows, columns) = np.random.default_rng(0), shape
    part = slice(columns // 16 * 16 - 16 if columns > 16 else 0, columns)
    floats = random.standard_normal(shape, np.float32)
    for dtype in (ir.DataType.FLOAT, ir.DataType.BFLOAT16):
        packed = layouts.packed_floats(floats, np.dtype(dtype.numpy()))
        expected = floats.astype(dtype.numpy()).astype(np.float32)
        np.testing.assert_array_equal(layouts.unpacked_floats(packed, part), expected[:, part])
    bytes_ = random.integers(-128, 128, shape).astype(np.int8)
    packed = layouts.packed_int8(lambda each: bytes_[:, each], rows, columns)
    np.testing.assert_array_equal(layouts.unpacked_int8(packed, rows, part), bytes_[:, part])
    halves = random.integers(0, 16, shape).astype(np.uint8)
    packed = layouts.packed_int4(lambda each: halves[:, each], rows, columns, 32)
    np.testing.assert_array_equal(layouts.unpacked_int4(packed, part)[:rows], halves[:, part])


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e12])
def test_scales_of_any_size_keep_the_precision_of_float16(scale):
    """Scale columns by a power of two, which absorbs what exceeds float16 without rounding."""
    scales = (np.random.default_rng(0).random((8, 20), np.float32) + np.float32(0.01)) * np.float32(scale)
    scales[:, 3] = 0
    factors = numpy_quantizers.column_factors(scales)
    assert (np.exp2(np.rint(np.log2(factors))) == factors).all()
    kept = (scales / factors).astype(np.float16).astype(np.float32) * factors
    np.testing.assert_allclose(kept, scales, rtol=2**-11)


def test_numbers_in_four_bits_are_those_of_onnxruntime():
    weight = normal(100, 40)
    found = numpy_quantizers.int4(weight, 32)
    blocks = numpy_quantizers.nbits(weight, 4, 32)
    codes = np.stack([blocks.numbers & 15, blocks.numbers >> 4], -1).reshape(40, -1)
    np.testing.assert_array_equal(found.numbers, codes.T)
    restored = (found.numbers.astype(np.float32) - found.zero_points.repeat(32, 0)) * found.scales.repeat(32, 0)
    assert np.abs(restored[:100] - weight).max() < np.abs(weight).max() / 7.5
