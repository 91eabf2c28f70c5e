"""Sums over an axis become additions of whole tensors, whose bits do not depend on the rows beside them."""

import numpy as np
import pytest

from speccompile.compiler.lower.passes.ordered_sums import ordered_sums
from tests.compile.test_passes import apply, check, graph, normal, run, unchanged

TOKENS = 17
AXES = {"last": -1, "middle": 1}


def reduction(op: str, axis: int, size: int, keeps: int) -> str:
    shape, rest = (f"N, {size}", "N") if axis == -1 else (f"N, {size}, 24", "N, 24")
    kept = ("N, 1" if axis == -1 else "N, 1, 24") if keeps else rest
    return f"""(float[{shape}] x) => (float[{kept}] y) {{
        axis = Constant<value_ints = [{axis}]>()  y = {op}<keepdims = {keeps}>(x, axis) }}"""


def values(axis: int, size: int) -> np.ndarray:
    return normal(TOKENS, size) if axis == -1 else normal(TOKENS, size, 24)


@pytest.mark.parametrize(
    ("op", "size", "keeps", "ops"),
    [
        ("ReduceSum", 8, 1, {"Split": 1, "Sum": 1, "Identity": 1}),
        ("ReduceSum", 1, 0, {"Squeeze": 1}),
        ("ReduceMean", 6, 0, {"Split": 1, "Sum": 1, "Div": 1, "Squeeze": 1}),
        ("ReduceSum", 69, 0, {"Split": 4, "Add": 3, "Concat": 2, "Sum": 1, "Squeeze": 1}),
    ],
)
@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_the_graph_gives_what_it_gave(op, size, keeps, ops, axis):
    check(ordered_sums, text=reduction(op, axis, size, keeps), feeds={"x": values(axis, size)}, ops=ops)


@pytest.mark.parametrize("size", [5, 6, 8, 10, 17, 69])
@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_a_token_has_the_same_bits_in_every_window(axis, size):
    """ONNX Runtime's own sums do not: eight experts of one token are added in another order than those of two."""
    _, model, _ = apply(ordered_sums, before=graph(reduction("ReduceSum", axis, size, 0)))
    x = values(axis, size)
    (alone,) = zip(*[run(model, {"x": x[i : i + 1].copy()}) for i in range(TOKENS)], strict=True)
    for width in (2, 5, 9, TOKENS):
        (window,) = run(model, {"x": x[:width].copy()})
        assert window.tobytes() == np.concatenate(alone[:width]).tobytes()


VARIANCE = """(float[N, 69] x) => (float[N] y) { axis = Constant<value_ints = [-1]>()
    mean = ReduceMean(x, axis)  away = Sub(x, mean)  square = Mul(away, away)
    y = ReduceMean<keepdims = 0>(square, axis) }"""


def test_a_variance_is_added_in_one_order():
    """Leave the types inside out, as the exporter does where it writes one out: Gemma 3n has it in sparse layers."""
    before = graph(VARIANCE)
    del before.graph.value_info[:]
    fired, model, ops = apply(ordered_sums, before=before)
    assert (fired, ops["Sum"]) == (2, 2)
    assert "ReduceMean" not in ops
    x = values(-1, 69)
    np.testing.assert_allclose(run(model, {"x": x})[0], x.var(axis=-1), rtol=1e-6)


def test_whole_numbers_inside_arithmetic_stay():
    text = """(int64[N, 8] x) => (int64[N, 1] y) {
        axis = Constant<value_ints = [1]>()  z = Mul(x, x)  y = ReduceSum(z, axis) }"""
    before = graph(text)
    del before.graph.value_info[:]
    assert apply(ordered_sums, before=before)[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        "(int64[N, 8] x) => (int64[N, 1] y) { axis = Constant<value_ints = [1]>()  y = ReduceSum(x, axis) }",
        "(float[N, K] x) => (float[N, 1] y) { axis = Constant<value_ints = [1]>()  y = ReduceSum(x, axis) }",
        "(float[N, 4, 2] x) => (float[N, 1, 1] y) { axes = Constant<value_ints = [1, 2]>()  y = ReduceSum(x, axes) }",
    ],
    ids=["integers", "unknown size", "two axes"],
)
def test_other_reductions_stay(text):
    unchanged(ordered_sums, text=text)
