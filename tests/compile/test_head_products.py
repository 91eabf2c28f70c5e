"""Products with a matrix for each head, as Zamba's heads of Mamba have, become linear layers."""

import onnx_ir as ir

from speccompile.compiler.lower.passes.head_products import head_products
from speccompile.compiler.lower.quantize.linear import find_linears
from tests.compile.test_passes import check, graph, normal

PRODUCTS = f"""(float[3, 2, 4, T] x) => (float[3, 2, 2, T] y)
    <float[3, 2, 4] w = {{{", ".join(map(str, range(24)))}}}> {{
    axis = Constant<value_ints = [1]>()  each = Unsqueeze(w, axis)  y = MatMul(each, x) }}"""


def test_the_graph_gives_what_it_gave():
    ops = {"Gather": 6, "Transpose": 9, "MatMul": 3, "Unsqueeze": 3, "Concat": 1}
    check(head_products, text=PRODUCTS, feeds={"x": normal(3, 2, 4, 5)}, ops=ops)


def test_each_head_is_a_linear_layer():
    model = ir.from_proto(graph(PRODUCTS))
    assert head_products(model) == 1
    assert [each.weight.name for each in find_linears(model.graph)] == ["w.0.T", "w.1.T", "w.2.T"]
