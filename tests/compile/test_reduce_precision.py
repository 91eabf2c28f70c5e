"""float16 and bfloat16: what becomes of every kind of value, and how far the results lie from float32."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, numpy_helper

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.export import export_verify
from speccompile.compiler.lower.files import neutral_file, write_neutral
from speccompile.compiler.lower.passes import reduce_precision as module
from speccompile.compiler.lower.passes.emulate_bfloat16 import emulate_bfloat16
from speccompile.compiler.lower.passes.reduce_precision import reduce_precision
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.verify import Verify
from tests import zoo

pytestmark = pytest.mark.builds(3)

neutral.register_schemas()  # an export does it too: the checker must then accept what the pass writes
HEADER = f'<ir_version: 10, opset_import: ["" : {neutral.OPSET}, "{neutral.DOMAIN}" : 1, "com.microsoft" : 1]>'
FLOAT, FLOAT16, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
TYPES = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}


def graph(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{HEADER} graph {text}")
    model.functions.extend(neutral.functions())
    return onnx.shape_inference.infer_shapes(model)


def reduced(
    text: str, dtype: str = "float16", constants: dict[str, list[float]] | None = None
) -> tuple[int, onnx.ModelProto, dict[str, int]]:
    """Return how many nodes compute in the new type, the new graph, and the type of every value."""
    before = graph(text)
    for name, values in (constants or {}).items():
        before.graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32), name))
    model = ir.from_proto(before)
    fired = reduce_precision(model, TYPES[dtype])
    after = onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, strict_mode=True)
    onnx.checker.check_model(after)
    values = [*after.graph.value_info, *after.graph.input, *after.graph.output]
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    return fired, after, kinds | {weight.name: weight.data_type for weight in after.graph.initializer}


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


LAYER = """(int64[1, T] tokens, int64[1, T] places, float[1, 1, 8, 4] cache, int64[1] length)
    => (float[1, T, 6] logits, int64[1, T] best, float[1, 1, 8, 4] updated)
    <float[6, 4] table = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 0.3, 0.1, 0.2, 0.4, 0.6, 0.5, 1.0,
     0.7, 0.9, 0.8, 1.3, 1.2}, float[4] norm = {1.0, 2.0, 1.0, 2.0}, float[4, 1] frequency = {1.0, 0.1, 0.01, 0.001},
     int64[4] heads = {1, 1, -1, 4}, int64[3] flat = {1, -1, 4}, float low = {-1e30}, float none = {0.0},
     float one = {1.0}, int64[1] last = {-1}, int64[1] one_axis = {1}> {
    hidden = Gather(table, tokens)
    scaled = LayerNormalization<axis = -1>(hidden, norm)
    float_places = Cast<to = 1>(places)  column = Unsqueeze(float_places, last)
    turned = Transpose<perm = [1, 0]>(frequency)  angles = MatMul(column, turned)  cosine = Cos(angles)
    rotated = Mul(scaled, cosine)
    rows = Reshape(rotated, heads)
    other = Unsqueeze(float_places, last)  square = Unsqueeze(float_places, one_axis)
    seen = LessOrEqual(square, other)  bias = Where(seen, none, low)  bias4 = Unsqueeze(bias, one_axis)
    context = speccompile.Attend<scale = 0.5, softcap = 0.0, window = 0, ring = 0>(
        rows, rows, rows, cache, cache, length, places, bias4)
    updated = speccompile.Commit<axis = 2, mode = "linear">(cache, rows, length)
    joined = Reshape(context, flat)
    residual = Add(hidden, joined)
    more = Add(norm, one)
    final = Mul(residual, more)
    head = Transpose<perm = [1, 0]>(table)
    logits = MatMul(final, head)
    best = ArgMax<axis = -1, keepdims = 0>(logits) }""".replace(
    "int64[1] last", "int64[1] one_axis = {1}, int64[1] last"
)


def test_every_kind_of_value_has_its_type():
    fired, after, kinds = reduced(LAYER)
    low = {"hidden", "cache", "updated", "context", "joined", "residual", "final", "table.float16"}
    full = {"scaled", "float_places", "angles", "cosine", "rotated", "bias4", "norm", "frequency", "logits", "low"}
    assert {name: kinds[name] for name in low | full} == dict.fromkeys(low, FLOAT16) | dict.fromkeys(full, FLOAT)
    assert fired == 7
    assert "table" not in kinds  # the head reads the converted embedding, turned
    assert [node.op_type for node in after.graph.node].count("Transpose") == 2


def test_a_cache_that_is_only_read_is_a_cache():
    borrowed = LAYER.replace(", float[1, 1, 8, 4] updated)", ")")
    borrowed = borrowed.replace(
        '    updated = speccompile.Commit<axis = 2, mode = "linear">(cache, rows, length)\n', ""
    )
    _, after, kinds = reduced(borrowed)
    assert kinds["cache"] == FLOAT16
    assert "Commit" not in {node.op_type for node in after.graph.node}


def test_rows_are_cast_once_for_attention_and_commit():
    _, after, _ = reduced(LAYER)
    attend, commit = (next(n for n in after.graph.node if n.op_type == op) for op in ("Attend", "Commit"))
    assert attend.input[1] == attend.input[2] == commit.input[1]


BY_DISTANCE = LAYER.replace(
    "bias = Where(seen, none, low)",
    "from = Unsqueeze(places, last)  to = Unsqueeze(places, one_axis)  distance = Sub(from, to)"
    "  near = Gather(distances, distance)  bias = Where(seen, near, low)",
).replace("float none = {0.0}", "float[4] distances = {0.1, 3.0, -2.0, 0.5}")


@pytest.mark.parametrize("layer", [LAYER, BY_DISTANCE], ids=["mask", "bias of each distance"])
def test_a_reduced_neutral_graph_runs_and_is_near(layer):
    generator = np.random.default_rng(0)
    feeds = {
        "tokens": np.array([[1, 5, 2]]),
        "places": np.array([[4, 5, 6]]),
        "cache": generator.standard_normal((1, 1, 8, 4), np.float32),
        "length": np.array([4]),
    }
    expected = run(graph(layer), feeds)
    got = run(reduced(layer)[1], feeds | {"cache": feeds["cache"].astype(np.float16)})
    assert [value.dtype for value in got] == [np.float32, np.int64, np.float16]
    np.testing.assert_array_equal(got[1], expected[1])
    for index in (0, 2):
        np.testing.assert_allclose(got[index], expected[index], rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    ("dtype", "largest"), [("float16", 65504.0), ("bfloat16", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max))]
)
def test_what_is_too_large_becomes_the_largest_number(dtype, largest):
    """Clamp a mask that is added to computed numbers; infinities stay as they are."""
    text = """(int64[T] tokens) => (float[T, 4] y) <float[1, 4] table = {1.0, 2.0, 3.0, 4.0}> {
        hidden = Gather(table, tokens)  y = Add(hidden, mask) }"""
    given = [-3.4e38, 3.4e38, -np.inf, 0.1]
    _, after, _ = reduced(text, dtype, {"mask": given})
    mask = next(numpy_helper.to_array(w) for w in after.graph.initializer if w.name == f"mask.{dtype}")
    near = float(np.float32(0.1).astype(mask.dtype))
    assert mask.astype(np.float64).tolist() == [-largest, largest, -np.inf, near]


def test_graphs_without_floats_stay():
    text = "(int64[3] x) => (int64[3] y) { y = Add(x, x) }"
    fired, after, _ = reduced(text)
    assert (fired, [node.op_type for node in after.graph.node]) == (0, ["Add"])


def test_experts_are_read_in_the_new_type():
    """Convert a weight of all experts, of which one is gathered; rows are counted in float32."""
    text = """(int64[T] tokens) => (float[T, 2] y, int64[1] count)
        <float[1, 2] table = {1.0, 2.0}, float[2, 2, 2] experts = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0},
         int64 first = {1}, int64[1] axis = {0}> {
        hidden = Gather(table, tokens)  expert = Gather(experts, first)  y = MatMul(hidden, expert)
        ones = Cast<to = 1>(tokens)  sum = ReduceSum(ones, axis)  count = Cast<to = 7>(sum) }"""
    _, after, kinds = reduced(text)
    assert {kinds[name] for name in ("experts.float16", "table.float16", "hidden")} == {FLOAT16}
    assert {kinds[name] for name in ("ones", "sum", "y")} == {FLOAT}
    assert "experts" not in kinds
    np.testing.assert_allclose(run(after, {"tokens": np.array([0, 0])})[0], [[19, 22], [19, 22]])


def test_quantized_weights_and_activations_are_read_in_the_new_type():
    text = """(int64[T] tokens) => (float[T, 2] y, float[T, 2] z)
        <float[1, 2] table = {1.0, 2.0}, int8[2, 2] weight = {1, 2, 3, 4}, float scale = {0.5}, int8 zero = {0}> {
        hidden = Gather(table, tokens)  weights = DequantizeLinear(weight, scale, zero)  y = MatMul(hidden, weights)
        few = QuantizeLinear(hidden, scale, zero)  wide = DequantizeLinear(few, scale, zero)
        z = MatMul(wide, weights) }"""
    _, after, kinds = reduced(text)
    assert {kinds[name] for name in ("hidden", "wide", "scale.float16")} == {FLOAT16}
    assert kinds["few"] == TensorProto.INT8
    for got in run(after, {"tokens": np.array([0])}):
        np.testing.assert_allclose(got, [[3.5, 5.0]])


def test_weights_of_onnx_runtime_s_own_format_are_read_in_the_new_type():
    """MatMulNBits, whose result onnx knows nothing of, nor what follows from it; and values that share a type."""
    text = """(int64[T] tokens) => (float[T, 2] y) <float[1, 32] table = {TABLE}, uint8[2, 1, 16] weight = {WEIGHT},
        float[2, 1] scales = {0.5, 0.25}, float[2] bias = {1.0, 2.0}, int64[2] shape = {-1, 2}> {
        hidden = Gather(table, tokens)
        product = com.microsoft.MatMulNBits<K = 32, N = 2, bits = 4, block_size = 32>(hidden, weight, scales)
        more = Add(product, bias)  y = Reshape(more, shape) }"""
    text = text.replace("TABLE", ", ".join(["1.0"] * 32)).replace("WEIGHT", ", ".join(["153"] * 32))
    before = onnx.parser.parse_model(f"{HEADER} graph {text}")
    model, shared = ir.from_proto(before), ir.TensorType(ir.DataType.FLOAT)
    for node in model.graph:
        node.outputs[0].type = shared
    assert reduce_precision(model, TYPES["float16"]) == 4
    assert [str(node.outputs[0].dtype) for node in model.graph] == ["FLOAT16"] * 4 + ["FLOAT"]
    np.testing.assert_array_equal(run(ir.to_proto(model), {"tokens": np.array([0])})[0], [[17, 10]])


def test_a_constant_that_needs_computing_is_computed_in_float32():
    text = """(int64[T] tokens) => (float[T, 2] y)
        <float[1, 2] table = {1.0, 2.0}, float[2] weight = {0.1, 0.2}> {
        hidden = Gather(table, tokens)  large = Mul(weight, weight)  turned = Neg(large)  y = Mul(hidden, turned) }"""
    _, _, kinds = reduced(text)
    assert {kinds[name] for name in ("large", "turned")} == {FLOAT}


def test_weights_are_converted_when_they_are_written(tmp_path, monkeypatch):
    """Convert one weight at a time, and write none that no node reads."""
    zoo.save("llama_tied", tmp_path / "model", tokenizer=False)
    exported = export_verify(Verify(probe(load_model(tmp_path / "model", 24), CacheShape(1, 32, 24))))
    write_neutral(exported.model, exported.graph, tmp_path, "weights")
    model = ir.load(tmp_path / neutral_file(exported.graph))
    converted: list[int] = []

    def counted(tensor, dtype):
        converted.append(tensor.size)
        return convert(tensor, dtype)

    convert = module._convert
    monkeypatch.setattr(module, "_convert", counted)
    reduce_precision(model, TYPES["float16"])
    assert sum(converted) < 100  # scalars
    path = tmp_path / "graphs" / "low.onnx"
    ir.save(model, path, external_data="low.weights", size_threshold_bytes=1024)
    matrices = [w for w in onnx.load(path).graph.initializer if len(w.dims) == 2]
    assert {weight.data_type for weight in matrices} == {FLOAT16}
    assert sum(converted) >= sum(np.prod(weight.dims) for weight in matrices)
    size = (tmp_path / "graphs" / "weights").stat().st_size
    assert 0.5 <= (tmp_path / "graphs" / "low.weights").stat().st_size / size <= 0.51


def test_sampling_stays_float32():
    """Keep float32 from the logits on, and in all inputs but caches."""
    text = """(int64[1, T] tokens, float[1] temperature, int64[1] top_k, float[1] top_p, float[1] min_p,
        float[1, T] uniforms) => (float[1, T, 3] logits, int64[1, T] drawn) <int64[3] rows = {-1, 1, 1},
        float[3, 2] table = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, float[2, 3] head = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> {
        hidden = Gather(table, tokens)  logits = MatMul(hidden, head)
        divisor = Reshape(temperature, rows)  heated = Div(logits, divisor)  probs = Softmax<axis = 2>(heated)
        threshold, mass = speccompile.Nucleus(probs, top_k, top_p, min_p)
        drawn = speccompile.Draw(probs, threshold, uniforms) }"""
    fired, after, kinds = reduced(text)
    full = {"temperature", "top_p", "uniforms", "logits", "divisor", "heated", "probs", "threshold", "mass"}
    assert {name: kinds[name] for name in full} == dict.fromkeys(full, FLOAT)
    assert (kinds["hidden"], fired) == (FLOAT16, 2)
    assert [node.op_type for node in after.graph.node].count("Cast") == 1  # the logits'


def test_emulated_bfloat16_rounds_every_result():
    text = """(int64[3] rows) => (float[3, 2] y) <float[4] weight = {0.1, 0.2, 0.3, 0.4}> {
        x = Gather(table, rows)
        scaled = Mul(x, weight)  three = Constant<value_float = 0.3>()  more = Add(scaled, three)
        moved = Identity(more)  y = MatMul(moved, other) }"""
    generator = np.random.default_rng(0)
    x, other = (generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((3, 4), (4, 2)))
    constants = {"table": x.astype(np.float32), "other": other.astype(np.float32)}
    model = ir.from_proto(reduced(text, "bfloat16", constants)[1])
    assert emulate_bfloat16(model) == 3
    after = ir.to_proto(model)
    (got,) = run(after, {"rows": np.arange(3)})
    weight, three = np.array([0.1, 0.2, 0.3, 0.4], ml_dtypes.bfloat16), ml_dtypes.bfloat16(0.3)
    rounded = x * weight + three  # ml_dtypes rounds every result
    product = rounded.astype(np.float32) @ other.astype(np.float32)
    np.testing.assert_array_equal(got, product.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 5e-3), ("bfloat16", 4e-2)])
def test_logits_are_near_those_of_transformers_in_the_same_precision(dtype, tolerance, tmp_path):
    """Compare both with the float32 model: each lies within the tolerance, on its own side."""
    zoo.save("qwen3", tmp_path / "model", tokenizer=False)
    eager, reduced_eager = zoo.model("qwen3"), zoo.model("qwen3").to(getattr(torch, dtype))
    tokens = torch.from_numpy(np.random.default_rng(3).integers(3, zoo.VOCABULARY, (1, 20)))
    with torch.no_grad():
        exact, low = (each(tokens).logits[0].float().numpy() for each in (eager, reduced_eager))
    exported = export_verify(Verify(probe(load_model(tmp_path / "model", 24), CacheShape(1, 44, 24))))
    reduce_precision(exported.model, TYPES[dtype])
    if dtype == "bfloat16":
        emulate_bfloat16(exported.model)
    model = ir.to_proto(exported.model)
    cached = np.float32 if dtype == "bfloat16" else np.float16
    states = {i.name: np.zeros([d.dim_value for d in i.type.tensor_type.shape.dim], cached) for i in model.graph.input
              if i.name.startswith("target.")}  # fmt: skip
    one = np.array([1])
    feeds = {"window": tokens.numpy(), "n_given": one, "n_total": one, "length": 0 * one, "logit_rows": np.arange(20)}
    got = run(model, feeds | states)[2][0]
    largest = np.abs(exact).max()
    assert 1e-5 * largest < np.abs(got - exact).max() <= tolerance * largest
    assert np.abs(got - low).max() <= 2 * tolerance * largest
