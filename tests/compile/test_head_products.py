"""Products with a matrix for each head, as Llama 4's experts and Zamba's heads of Mamba, become linear layers; so do
those whose weight is on the left, as Mamba's steps of time."""

import onnx_ir as ir
import pytest

from speccompile.compiler.lower.passes.head_products import head_products
from speccompile.compiler.lower.passes.left_products import left_products
from speccompile.compiler.lower.quantize.linear import find_linears
from tests.compile.test_passes import check, graph, normal

NUMBERS = ", ".join(map(str, range(24)))
LEFT = f"""(float[3, 2, 4, T] x) => (float[3, 2, 2, T] y) <float[3, 2, 4] w = {{{NUMBERS}}}> {{
    axis = Constant<value_ints = [1]>()  each = Unsqueeze(w, axis)  y = MatMul(each, x) }}"""
RIGHT = f"""(float[3, T, 4] x) => (float[3, T, 2] y) <float[3, 4, 2] w = {{{NUMBERS}}}> {{ y = MatMul(x, w) }}"""
TURNED = f"""(float[3, T, 4] x) => (float[3, T, 2] y) <float[3, 2, 4] w = {{{NUMBERS}}}> {{
    turned = Transpose<perm = [0, 2, 1]>(w)  y = MatMul(x, turned) }}"""
WAYS = {
    "left": (LEFT, (3, 2, 4, 5), {"Transpose": 9}, "w.{}.T"),
    "right": (RIGHT, (3, 5, 4), {}, "w.{}"),
    "turned": (TURNED, (3, 5, 4), {"Transpose": 3}, "w.{}.T"),
}
"""Way of writing -> graph, shape of the input, nodes made beside those of every way, name of a head's weight."""


@pytest.mark.parametrize("way", WAYS)
def test_the_graph_gives_what_it_gave(way):
    text, shape, more, _ = WAYS[way]
    ops = {"Gather": 6, "MatMul": 3, "Unsqueeze": 3, "Concat": 1} | more
    check(head_products, text=text, feeds={"x": normal(*shape)}, ops=ops)


@pytest.mark.parametrize("way", WAYS)
def test_each_head_is_a_linear_layer(way):
    text, _, _, name = WAYS[way]
    model = ir.from_proto(graph(text))
    assert head_products(model) == 1
    assert [each.weight.name for each in find_linears(model.graph)] == [name.format(head) for head in range(3)]


def test_products_of_two_activations_stay():
    model = ir.from_proto(graph("(float[3, T, 4] x, float[3, 4, 2] w) => (float[3, T, 2] y) { y = MatMul(x, w) }"))
    assert head_products(model) == 0


STEPS = f"(float[B, 4, T] x) => (float[B, 6, T] y) <float[6, 4] w = {{{NUMBERS}}}> {{ y = MatMul(w, x) }}"


def test_a_weight_on_the_left_is_a_linear_layer_too():
    check(left_products, text=STEPS, feeds={"x": normal(2, 4, 5)}, ops={"Transpose": 3, "MatMul": 1})
    model = ir.from_proto(graph(STEPS))
    assert left_products(model) == 1
    assert [each.weight.name for each in find_linears(model.graph)] == ["w.T"]


def test_a_weight_on_the_right_stays():
    model = ir.from_proto(
        graph(f"(float[B, T, 4] x) => (float[B, T, 6] y) <float[4, 6] w = {{{NUMBERS}}}> {{ y = MatMul(x, w) }}")
    )
    assert left_products(model) == 0
