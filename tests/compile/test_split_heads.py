"""One weight that latent attention reads head by head, as linear layers; and complex numbers in a trace."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx import numpy_helper

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.complex_views import real_axis_moves
from speccompile.compiler.lower.quantize.heads import split_heads
from speccompile.compiler.lower.quantize.linear import find_linears

HEADS, ROWS, RANK, TOKENS = 3, 7, 5, 4


def stacked(start: int, stop: int, *, turned: bool) -> onnx.ModelProto:
    """Return y = x times the rows from `start` to `stop` of each head's part of a weight [heads * rows, rank]."""
    depth, width = (RANK, stop - start) if turned else (stop - start, RANK)
    part = "part" if not turned else "turned"
    text = f"""<ir_version: 10, opset_import: ["" : {neutral.OPSET}]>
    graph (float[2, {HEADS}, {TOKENS}, {depth}] x) => (float[2, {HEADS}, {TOKENS}, {width}] y) {{
        size = Constant <value_ints = [{HEADS}, {ROWS}, -1]> ()
        first = Constant <value_ints = [{start}]> ()
        last_0d = Constant <value_int = {stop}> ()
        flat = Constant <value_ints = [-1]> ()
        last = Reshape (last_0d, flat)
        axis = Constant <value_ints = [1]> ()
        stack = Reshape (weight, size)
        part = Slice (stack, first, last, axis)
        {"turned = Transpose <perm = [0, 2, 1]> (part)" if turned else ""}
        y = MatMul (x, {part})
    }}"""
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((HEADS * ROWS, RANK)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize(("start", "stop", "turned"), [(0, 4, False), (4, 7, True), (0, 7, False)])
def test_a_product_with_a_matrix_for_each_head_is_a_layer_a_head(start, stop, turned):
    before = stacked(start, stop, turned=turned)
    model = ir.from_proto(before)
    assert split_heads(model) == 1
    linears = find_linears(model.graph)
    assert len(linears) == HEADS
    weight = numpy_helper.to_array(before.graph.initializer[0])
    for head, linear in enumerate(linears):
        own = weight[head * ROWS + start : head * ROWS + stop]
        np.testing.assert_array_equal(linear.weight.numpy(), own.T if turned else own)
    assert len({linear.weight.name for linear in linears}) == HEADS
    depth = RANK if turned else stop - start
    x = np.random.default_rng(1).standard_normal((2, HEADS, TOKENS, depth)).astype(np.float32)
    np.testing.assert_allclose(run(ir.to_proto(model), x), run(before, x), atol=1e-5)


def test_a_product_with_anything_else_stays():
    model = ir.from_proto(stacked(0, 4, turned=False))
    slices, flat = (next(node for node in model.graph if node.op_type == op) for op in ("Slice", "Reshape"))
    slices.replace_input_with(3, flat.inputs[1])  # along another axis, the last
    assert split_heads(model) == 0


class Turning(torch.nn.Module):
    """Rows turned as DeepSeek-V2 turns them."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turns = torch.polar(torch.ones_like(angles), angles) * 0.5
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns.unsqueeze(1)).flatten(3)


class Cutting(torch.nn.Module):
    """Rows turned as Llama 4 turns them."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turns = torch.polar(torch.ones_like(angles), angles)[:, :, None, :]
        pairs = torch.view_as_complex(x.transpose(1, 2).reshape(2, 4, 3, -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3)


@pytest.mark.parametrize("module", [Turning, Cutting])
def test_complex_numbers_are_moved_as_pairs(module):
    x, angles = torch.randn(2, 3, 4, 6), torch.randn(2, 4, 3)
    program = torch.export.export(module(), (x, angles), strict=False)
    assert real_axis_moves(program) > 0
    exported = torch.onnx.export(program, dynamo=True, opset_version=neutral.OPSET, optimize=False, verbose=False)
    session = ort.InferenceSession(exported.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": x.numpy(), "angles": angles.numpy()})
    np.testing.assert_allclose(got, module()(x, angles).numpy(), atol=1e-6)
