"""Passes that leave fewer nodes around the kernels, on small graphs."""

import onnx_ir as ir
import pytest
from onnx_ir.passes.common import RemoveUnusedNodesPass

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes.flat_products import flat_products
from speccompile.compiler.lower.passes.fold_offsets import fold_offsets
from speccompile.compiler.lower.passes.fuse_gelu import fuse_gelu
from tests.compile.test_passes import check, normal, unchanged

GELU = """(float[2, T, 8] x) => (float[2, T, 8] y) {{
    half = Constant<value_float = 0.5>()  three = Constant<value_float = 3.0>()  one = Constant<value_float = 1.0>()
    cubic = Constant<value_float = {cubic}>()  slope = Constant<value_float = 0.7978845608028654>()
    halved = Mul(x, half)  cube = Pow(x, three)  part = Mul(cube, cubic)  inner = Add(x, part)  bent = Mul(inner, slope)
    tanh = Tanh(bent)  gate = Add(tanh, one)  y = Mul(halved, gate) }}"""
OFFSET = """(float[2, T, 3] x) => (float[2, T, {width}] y)
<float[3] weight = {{0.5, -1.0, 2.0}}, float{shape} one = {{{ones}}}>
{{ scale = Add(one, weight)  y = Mul(x, scale) }}"""


def test_gelu_is_one_node():
    check(fuse_gelu, text=GELU.format(cubic=0.044715), feeds={"x": normal(2, 5, 8)}, ops={"Gelu": 1})
    unchanged(fuse_gelu, text=GELU.format(cubic=0.05))


def test_an_offset_is_part_of_the_weight():
    text = OFFSET.format(width=3, shape="", ones="1.0")
    check(fold_offsets, text=text, feeds={"x": normal(2, 5, 3)}, ops={"Mul": 1})


def test_what_is_no_offset_of_a_vector_stays():
    unchanged(fold_offsets, text=OFFSET.format(width=3, shape="[3]", ones="1.0, 2.0, 3.0"))
    unchanged(fold_offsets, text=OFFSET.format(width=3, shape="[1, 1]", ones="1.0"))  # adds an axis


def product(depth: int, columns: int, *, width: int = 8, behind: tuple[int, ...] = (2, 3, 6)) -> ir.Model:
    """Return y [behind] = Reshape(Linear(Reshape(x [2, 3, width]))), between them rows of `depth` and `columns`."""
    x = ir.Value(name="x", shape=ir.Shape([2, 3, width]), type=ir.TensorType(ir.DataType.FLOAT))
    weight, bias = (ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)) for name in ("weight", "bias"))
    flat, whole = (ir.node("Constant", [], {"value_ints": list(sizes)}) for sizes in ((-1, depth), behind))
    rows = ir.node("Reshape", [x, flat.outputs[0]])
    linear = ir.node("LinearFloat32", [rows.outputs[0], weight, bias], {"depth": depth, "columns": columns},
                     domain=DOMAIN)  # fmt: skip
    y = ir.node("Reshape", [linear.outputs[0], whole.outputs[0]])
    y.outputs[0].shape, y.outputs[0].type = ir.Shape(behind), x.type
    nodes = [flat, whole, rows, linear, y]
    return ir.Model(
        ir.Graph([x, weight, bias], y.outputs, nodes=nodes, opset_imports={"": 24, DOMAIN: 1}), ir_version=10
    )


def test_a_product_of_tokens_is_not_flattened():
    model = product(8, 6)
    assert flat_products(model) == 1
    RemoveUnusedNodesPass()(model)
    (linear,) = model.graph
    assert linear.inputs[0] is model.graph.inputs[0]
    assert list(model.graph.outputs[0].shape or ()) == [2, 3, 6]
    assert {name: each.as_int() for name, each in linear.attributes.items()} == {"depth": 8, "columns": 6}


@pytest.mark.parametrize(
    "model",
    [product(4, 3), product(8, 6, behind=(3, 2, 6)), product(8, 6, behind=(6, 6)), product(4, 6, behind=(2, 3, 12))],
    ids=["rows of halves", "other tokens", "flat", "joined"],
)
def test_other_rows_are(model):
    assert flat_products(model) == 0
