"""Byte caches of engines whose library does not update them: the lowered graph gives new rows, and the engine writes
them. The reference of int8 is onnx's evaluator over the bodies, that of fp8 the rounding of ml_dtypes."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from speccompile.compiler.lower import neutral, static_cache
from speccompile.contract import Graph, Tensor, with_tensorrt_states
from speccompile.runtime.devices.device import DeviceEngine
from speccompile.runtime.devices.onnxruntime import _write_rows
from tests.light.fake_cuda import FakeCuda

HEADS, GROUPS, ROWS, WIDTH = 4, 2, 12, 8
ENCODE = """
    {0}_codes, {0}_scales = speccompile.EncodeInt8({0}_rows)
    {0}_own = speccompile.DecodeInt8({0}_codes, {0}_scales)
    {0}_old = speccompile.DecodeInt8({0}_cache, {0}_cache_scales)
    {0}s = speccompile.Commit<axis = 2, mode = "linear">({0}_cache, {0}_codes, length)
    {0}s_scales = speccompile.Commit<axis = 2, mode = "linear">({0}_cache_scales, {0}_scales, length)
"""
ROUND = """
    {0}_own = speccompile.RoundFp8({0}_rows)
    {0}s = speccompile.Commit<axis = 2, mode = "linear">({0}_cache, {0}_own, length)
"""
AGAIN = """
    again_key = speccompile.DecodeInt8(keys, keys_scales)
    again_value = speccompile.DecodeInt8(values, values_scales)
    again = speccompile.Attend<scale = 0.3, softcap = 0.0, window = 0, ring = 0>
        (query, key_own, value_own, again_key, again_value, after, positions, bias)
"""
"""Nodes of a drafter in the same graph: they read the caches as the commit leaves them."""


def model(batch: int, kind: str) -> onnx.ModelProto:
    """Return an Attend over quantized caches, their commit, and for int8 an Attend over the updated caches."""
    dtype, text = ("int8", ENCODE) if kind == "int8" else ("float", ROUND)
    inputs = [f"float[{batch}, {HEADS}, 3, {WIDTH}] query", f"int64[{batch}] length", f"int64[{batch}] after"]
    inputs += [f"int64[{batch}, 3] positions", f"float[{batch}, 1, 3, 3] bias"]
    outputs, known, body = [f"float[{batch}, {HEADS}, 3, {WIDTH}] context"], [], ""
    for part in ("key", "value"):
        cache = f"{dtype}[{batch}, {GROUPS}, {ROWS}, {WIDTH}] {part}"
        known.append(f"float[{batch}, {GROUPS}, 3, {WIDTH}] {part}_own")
        known += [f"float[{batch}, {GROUPS}, {ROWS}, {WIDTH}] {name}" for name in (f"{part}_old", f"again_{part}")]
        inputs += [f"float[{batch}, {GROUPS}, 3, {WIDTH}] {part}_rows", f"{cache}_cache"]
        outputs.append(f"{cache}s")
        if kind == "int8":
            inputs.append(f"float[{batch}, {GROUPS}, {ROWS}, 1] {part}_cache_scales")
            outputs.append(f"float[{batch}, {GROUPS}, {ROWS}, 1] {part}s_scales")
        body += text.format(part)
    old = "old" if kind == "int8" else "cache"
    body += f"""
    context = speccompile.Attend<scale = 0.3, softcap = 0.0, window = 0, ring = 0>
        (query, key_own, value_own, key_{old}, value_{old}, length, positions, bias)
    """
    if kind == "int8":
        outputs.append(f"float[{batch}, {HEADS}, 3, {WIDTH}] again")
        body += AGAIN
    head = f'<ir_version: 10, opset_import: ["" : {neutral.OPSET}, "{neutral.DOMAIN}" : 1]>'
    shapes = ", ".join(known)  # which an export knows; where schemas are registered, no inference finds them
    made = onnx.parser.parse_model(
        f"{head} graph ({', '.join(inputs)}) => ({', '.join(outputs)}) <{shapes}> {{ {body} }}"
    )
    made.functions.extend(neutral.functions())
    return onnx.shape_inference.infer_shapes(made)


def lowered(made: onnx.ModelProto) -> ort.InferenceSession:
    rewritten = ir.from_proto(made)
    for value in rewritten.graph.outputs:
        value.shape = value.shape if value.name in ("context", "again") else None
    # An Attend that found no such commit would have a row in another column in every window.
    rewrites = static_cache.lower(rewritten)
    assert rewrites["commit_columns"] == 2 * sum(each.name in ("context", "again") for each in made.graph.output)
    return ort.InferenceSession(ir.to_proto(rewritten).SerializeToString(), providers=["CPUExecutionProvider"])


def given(lengths: list[int], kind: str) -> dict[str, np.ndarray]:
    random, batch = np.random.default_rng(0), len(lengths)
    found = {"query": random.normal(size=(batch, HEADS, 3, WIDTH)), "length": np.array(lengths)}
    found |= {"after": np.array(lengths) + 3, "positions": np.array(lengths)[:, None] + np.arange(3)}
    found["bias"] = np.where(np.tri(3, dtype=bool), 0.0, -1e30)[None, None].repeat(batch, 0)
    for part in ("key", "value"):
        found[f"{part}_rows"] = random.normal(size=(batch, GROUPS, 3, WIDTH)) * 3
        shape = (batch, GROUPS, ROWS, WIDTH)
        if kind == "int8":
            found[f"{part}_cache"] = random.integers(-127, 128, shape).astype(np.int8)
            found[f"{part}_cache_scales"] = random.uniform(0.01, 0.05, (*shape[:3], 1))
        else:
            found[f"{part}_cache"] = random.normal(size=shape).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return {name: each.astype(np.float32) if each.dtype == np.float64 else each for name, each in found.items()}


@pytest.mark.parametrize("lengths", [[5], [0], [5, 8], [0, 9]])
def test_int8_rows_are_those_of_the_bodies(lengths):
    made, inputs = model(len(lengths), "int8"), given(lengths, "int8")
    expected = dict(zip([o.name for o in made.graph.output], ReferenceEvaluator(made).run(None, inputs), strict=True))
    session = lowered(made)
    got = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
    for name in ("context", "again"):
        np.testing.assert_allclose(got[name], expected[name], atol=2e-6)
    for part in ("key", "value"):
        assert got[f"{part}s"].shape == (len(lengths), GROUPS, 3, WIDTH)
        cache = inputs[f"{part}_cache"].copy()
        _write_rows(got[f"{part}s"], cache, inputs["length"])
        np.testing.assert_array_equal(cache, expected[f"{part}s"])
        np.testing.assert_array_equal(got[f"{part}s_scales"], expected[f"{part}s_scales"])


@pytest.mark.parametrize("lengths", [[5], [0, 9]])
def test_fp8_rows_are_rounded_once(lengths):
    made, inputs = model(len(lengths), "fp8"), given(lengths, "fp8")
    inputs["key_rows"][0, 0, 0, :3] = [500.0, -1e4, 0.0]  # beyond the largest number of fp8
    names = ("key_rows", "value_rows")
    rounded = {name: np.clip(inputs[name], -448, 448).astype(ml_dtypes.float8_e4m3fn) for name in names}
    floats = {name: rows.astype(np.float32) for name, rows in rounded.items()}
    expected = ReferenceEvaluator(made).run(["context"], inputs | floats)[0]
    session = lowered(made)
    assert {each.name: each.type for each in session.get_inputs()}["key_cache"] == "tensor(float8e4m3fn)"
    binding = session.io_binding()
    for name, value in inputs.items():
        bytes_of = value.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) if name.endswith("_cache") else value
        kind = 17 if name.endswith("_cache") else onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bytes_of, kind))
    keys, context = np.zeros((len(lengths), GROUPS, 3, WIDTH), np.uint8), np.zeros_like(expected)
    binding.bind_ortvalue_output("keys", ort.OrtValue.ortvalue_from_numpy_with_onnx_type(keys, 17))
    binding.bind_ortvalue_output("context", ort.OrtValue.ortvalue_from_numpy_with_onnx_type(context, 1))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(keys, rounded["key_rows"].view(np.uint8))
    np.testing.assert_allclose(context, expected, atol=1e-5, rtol=1e-5)


class Giving(DeviceEngine):
    """Its graph gives rows of ones."""

    def __init__(self, cuda: FakeCuda, graph: Graph) -> None:
        super().__init__(cuda.open(), [graph], {})
        self._cuda = cuda

    def _prepare(self, binding):
        (rows,) = binding.outputs
        memory = self._cuda.view(rows.address, int(np.prod(rows.shape)))

        def give() -> None:
            memory.view(np.int8)[:] = np.arange(1, memory.size + 1)

        def run() -> None:
            self._with_copies(binding, lambda: self._cuda.put(self._device.stream, give))
            self._write_rows(binding)
            self._device.synchronize()

        return run


def test_a_device_writes_rows_at_each_slot_s_length():
    cache = Tensor("target.key.0", "int8", (2, 2, 6, 4), "target.key.0", "state")
    updated = Tensor("target.key.0.out", "int8", cache.shape, cache.buffer, "state")
    length = Tensor("length", "int64", (2,), "length", "io")
    held = with_tensorrt_states(Graph("verify", (length, cache), (updated,)))
    assert held.outputs[0] == Tensor("target.key.0.out", "int8", (2, 2, "window", 4), "rows.target.key.0", "link")
    assert held.aliases == {}
    engine = Giving(FakeCuda(), held)
    engine.write_state("target.key.0", np.full((2, 2, 6, 4), -1, np.int8))
    engine.host_view("length", (2,))[:] = [1, 4]
    engine.bind("verify", {"window": 3})()
    expected = np.full((2, 2, 6, 4), -1, np.int8)
    rows = np.arange(1, 49, dtype=np.int8).reshape(2, 2, 3, 4)
    expected[0, :, 1:4], expected[1, :, 4:6] = rows[0], rows[1, :, :2]  # the last row lies behind the cache
    np.testing.assert_array_equal(engine.host_view("target.key.0", (2, 2, 6, 4)), expected)
