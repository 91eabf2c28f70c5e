"""What quantized numbers mean, according to onnxruntime and to onnx's reference evaluator."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from speccompile.compiler.lower.quantize import numpy_quantizers
from speccompile.compiler.lower.quantize.numpy_quantizers import FP8, INT4, INT8

KINDS = {INT4: TensorProto.INT4, INT8: TensorProto.INT8, FP8: TensorProto.FLOAT8E4M3FN}


@pytest.fixture(autouse=True, params=[1 << 22, 200], ids=["at once", "a few columns at a time"])
def at_a_time(request, monkeypatch):
    monkeypatch.setattr(numpy_quantizers, "_AT_A_TIME", request.param)


def weight(rows: int, columns: int) -> np.ndarray:
    """Return one with a column of zeros, and one whose numbers float16 cannot hold."""
    found = np.random.default_rng(rows).standard_normal((rows, columns), np.float32)
    found[:, 1], found[:, 2] = 0, 1e-9
    return found


def matmul_nbits(x: np.ndarray, blocks: numpy_quantizers.Blocks, bits: int, block: int) -> np.ndarray:
    """Return x times the weight, as onnxruntime's operator computes it on floats."""
    attributes = {"K": x.shape[1], "N": len(blocks.scales), "bits": bits, "block_size": block, "accuracy_level": 0}
    node = helper.make_node("MatMulNBits", ["x", *blocks._fields], ["y"], domain="com.microsoft", **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in blocks._asdict().items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (4, 64), (4, 128), (8, 32)])
@pytest.mark.parametrize("turned", [False, True])
def test_nbits(bits, block, turned):
    """Rows that fill no whole block are among them, and a weight that lies in the file the other way round."""
    w = weight(96, 20)
    blocks = numpy_quantizers.nbits(np.ascontiguousarray(w.T).T if turned else w, bits, block)

    def unpacked(packed: np.ndarray) -> np.ndarray:
        return np.stack([packed & 15, packed >> 4], -1).reshape(20, -1) if bits == 4 else packed.reshape(20, -1)

    count = blocks.scales.shape[1]
    codes, zeros = unpacked(blocks.numbers).reshape(20, count, block), unpacked(blocks.zero_points)[:, :count]
    if bits == 8:
        zeros = np.full((20, count), 128.0)
        blocks = blocks._replace(zero_points=np.full_like(blocks.zero_points, 128))
    ours = ((codes - 1.0 * zeros[..., None]) * blocks.scales[..., None]).reshape(20, -1)[:, :96].T
    steps = np.repeat(np.abs(blocks.scales), block, axis=1)[:, :96].T
    assert (np.abs(ours - w) <= 1.001 * steps).all()
    assert np.abs(ours - w).max() > 0
    theirs = matmul_nbits(np.eye(96, dtype=np.float32), blocks, bits, block)
    np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.0])
def test_blocks_of_4_bits_use_the_whole_range(shift):
    """Quantize the smallest value, the largest and zero, wherever they lie."""
    numbers = numpy_quantizers.nbits(weight(64, 20)[:, 3:] + np.float32(shift), 4, 32).numbers
    codes = np.stack([numbers & 15, numbers >> 4], -1).reshape(17, 2, 32)
    assert (codes.max(axis=-1) - codes.min(axis=-1) >= (14 if shift == 0 else 7)).all()


def reference(w: np.ndarray, kind: ir.DataType, block: int, scales: np.ndarray, restore: bool) -> np.ndarray:
    """Apply QuantizeLinear, then DequantizeLinear, by onnx's own reference."""
    attributes = {"axis": 0, "block_size": block} if block < len(w) else {"axis": 1}
    zero = helper.make_tensor("z", KINDS[kind], scales.shape, np.zeros(scales.size))
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], **attributes),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ws"]
    output = helper.make_tensor_value_info("d" if restore else "q", TensorProto.FLOAT if restore else KINDS[kind], None)
    graph = helper.make_graph(nodes, "g", inputs, [output], [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    return ReferenceEvaluator(model).run(None, {"w": w, "s": scales})[0]


@pytest.mark.parametrize(("kind", "block"), [(INT4, 32), (INT4, 16), (INT8, 96), (FP8, 96)])
def test_numbers(kind, block):
    w = weight(96, 20)
    numbers, scales = numpy_quantizers.numbers(w, kind, block), numpy_quantizers.scales(w, kind, block)
    assert numbers.dtype == kind.numpy()
    assert scales.shape == (96 // block, 20)
    shape = scales.shape if block < 96 else 20
    expected = reference(w, kind, block, scales.reshape(shape), restore=False)
    np.testing.assert_array_equal(numbers.astype(np.float32), expected.astype(np.float32))
    restored = reference(w, kind, block, scales.reshape(shape), restore=True)
    largest = np.abs(w).reshape(-1, block, 20).max(axis=1).repeat(block, axis=0)
    error = {INT4: 1 / 14, INT8: 1 / 250, FP8: 1 / 16}[kind]
    assert (np.abs(restored - w) <= error * largest + 1e-8).all()


@pytest.mark.parametrize("kind", [INT4, INT8, FP8])
def test_scales_are_positive_and_float16(kind):
    scales = numpy_quantizers.scales(weight(32, 20), kind, 32)
    assert (scales > 0).all()
    np.testing.assert_array_equal(scales, scales.astype(np.float16))
    np.testing.assert_array_equal(scales[:, 1:3], 1)


@pytest.mark.parametrize(("kind", "largest"), [(INT8, 127), (FP8, 448)])
def test_an_activation_reaches_the_largest_number(kind, largest):
    for bounds in ((-3.0, 5.0), (-5.0, 3.0), (-5.0, -3.0)):
        scale = numpy_quantizers.activation_scale(kind, *bounds)
        assert scale.shape == ()
        np.testing.assert_allclose(scale, 5 / largest, rtol=1e-3)


def test_numbers_that_are_too_large_stay_finite():
    """Saturate a number that a scale, rounded down, makes too large for float8, which would give a NaN."""
    w = np.linspace(1, 2, 4096, dtype=np.float32)[None].repeat(2, axis=0)
    numbers = numpy_quantizers.numbers(w, FP8, 2).astype(np.float32)
    assert (numbers == float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)).all()
