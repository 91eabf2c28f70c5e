"""The passes that find normalizations, on small graphs."""

import pytest

from speccompile.compiler.lower.passes.layer_normalization import layer_normalization
from speccompile.compiler.lower.passes.norm_kernels import norm_kernels
from speccompile.compiler.lower.passes.rms_normalization import rms_normalization
from tests.compile.test_passes import check, normal, unchanged

RMS = """(float[1, T, 8] x, float[{scale}] w) => (float[1, T, 8] y) <int64[1] axes = {{{axis}}}> {{
    two = Constant<value_float = 2.0>()  epsilon = Constant<value_float = 1e-6>()
    {centre}
    square = Pow(c, two)  mean = ReduceMean(square, axes)  sum = Add(mean, epsilon)
    {root}  scaled = Mul(c, inverse)
    {weight} }}"""
PLAIN = {"scale": "8", "axis": "-1", "centre": "c = Identity(x)", "weight": "y = Mul(w, scaled)",
         "root": "root = Sqrt(sum)  inverse = Reciprocal(root)"}  # fmt: skip
POWER = PLAIN | {"root": "minus = Constant<value_float = -0.5>()  inverse = Pow(sum, minus)"}
GEMMA = PLAIN | {"weight": "one = Constant<value_float = 1.0>()  more = Add(w, one)  y = Mul(scaled, more)"}
CENTRED = PLAIN | {"centre": "middle = ReduceMean(x, axes)  c = Sub(x, middle)"}


def test_rms_normalization():
    feeds = {"x": normal(1, 3, 8), "w": normal(8)}
    ops = {"Identity": 1, "RMSNormalization": 1}
    check(rms_normalization, text=RMS.format(**PLAIN), feeds=feeds, ops=ops)
    check(rms_normalization, text=RMS.format(**POWER), feeds=feeds, ops=ops)
    check(rms_normalization, text=RMS.format(**GEMMA), feeds=feeds, ops=ops | {"Add": 1})


SKIP = """(float[1, T, 8] x, float[{residual}] r, float[8] w) => (float[1, T, 8] y, float[1, T, 8] z) {{
    s = Add(x, r)  n = RMSNormalization<axis = -1, epsilon = 1e-5>(s, w)  y = Relu(n)  z = Sqrt(s) }}"""


SKIPPED = {"x": normal(1, 3, 8) ** 2, "r": normal(1, 5, 8)[:, :3] ** 2, "w": normal(8)}


def test_a_sum_is_normalized_in_one_node():
    ops = {"SkipRmsNorm": 1, "Relu": 1, "Sqrt": 1}
    check(norm_kernels, text=SKIP.format(residual="1, T, 8"), feeds=SKIPPED, ops=ops)


@pytest.mark.parametrize("residual", ["8", "1, 1, 8"])
def test_a_sum_that_broadcasts_stays(residual):
    sizes = [int(size) for size in residual.split(",")]
    ops = {"Add": 1, "RmsNorm": 1, "Relu": 1, "Sqrt": 1}
    check(norm_kernels, text=SKIP.format(residual=residual), feeds=SKIPPED | {"r": normal(*sizes) ** 2}, ops=ops)


def test_a_sum_that_is_normalized_twice_is_added_once():
    text = """(float[1, T, 8] x, float[1, T, 8] r, float[8] w) => (float[1, T, 8] y, float[1, T, 8] z) {
        s = Add(x, r)  y = RMSNormalization<axis = -1, epsilon = 1e-5>(s, w)
        z = RMSNormalization<axis = -1, epsilon = 1e-3>(s, w) }"""
    check(norm_kernels, text=text, feeds=SKIPPED, ops={"SkipRmsNorm": 1, "RmsNorm": 1}, fired=2)


@pytest.mark.parametrize("bias", [", b", ""])
def test_a_layer_normalization_is_a_kernel(bias):
    text = f"""(float[1, T, 20] x, float[20] w, float[20] b) => (float[1, T, 20] y) {{
        y = LayerNormalization<axis = -1, epsilon = 1e-5>(x, w{bias}) }}"""
    feeds = {"x": 3 * normal(1, 4, 20) + 2, "w": normal(20), "b": normal(20)[::-1].copy()}
    check(norm_kernels, text=text, feeds=feeds, ops={"LayerNorm": 1})


@pytest.mark.parametrize("node", ["RMSNormalization<axis = 1>(x, w)", "LayerNormalization<axis = 1>(x, w)"])
def test_a_normalization_over_several_axes_stays(node):
    unchanged(norm_kernels, text=f"(float[1, 4, 8] x, float[4, 8] w) => (float[1, 4, 8] y) {{ y = {node} }}")


@pytest.mark.parametrize(
    "change",
    [{"axis": "1"}, {"scale": "1, 1, 8"}, {"weight": "y = Add(scaled, w)"}, {"root": "inverse = Pow(sum, two)"}],
)
def test_rms_normalization_of_another_kind_stays(change):
    unchanged(rms_normalization, text=RMS.format(**(PLAIN | change)))


def test_layer_normalization():
    feeds, ops = {"x": normal(1, 3, 8) + 5, "w": normal(8)}, {"LayerNormalization": 1}
    check(rms_normalization, layer_normalization, text=RMS.format(**CENTRED), feeds=feeds, ops=ops)
    unchanged(rms_normalization, layer_normalization, text=RMS.format(**PLAIN))
