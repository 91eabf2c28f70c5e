"""The passes that find normalizations, on small graphs."""

import pytest

from speccompile.lower.passes.layer_normalization import layer_normalization
from speccompile.lower.passes.rms_normalization import rms_normalization
from speccompile.lower.passes.skip_normalization import skip_normalization
from tests.compile.test_passes import check, normal, unchanged

RMS = """(float[1, T, 8] x, float[{scale}] w) => (float[1, T, 8] y) <int64[1] axes = {{{axis}}}> {{
    two = Constant<value_float = 2.0>()  epsilon = Constant<value_float = 1e-6>()
    {centre}
    square = Pow(c, two)  mean = ReduceMean(square, axes)  sum = Add(mean, epsilon)
    root = Sqrt(sum)  inverse = Reciprocal(root)  scaled = Mul(c, inverse)
    {weight} }}"""
PLAIN = {"scale": "8", "axis": "-1", "centre": "c = Identity(x)", "weight": "y = Mul(w, scaled)"}
GEMMA = PLAIN | {"weight": "one = Constant<value_float = 1.0>()  more = Add(w, one)  y = Mul(scaled, more)"}
CENTRED = PLAIN | {"centre": "middle = ReduceMean(x, axes)  c = Sub(x, middle)"}


def test_rms_normalization():
    feeds = {"x": normal(1, 3, 8), "w": normal(8)}
    ops = {"Identity": 1, "RMSNormalization": 1}
    check(rms_normalization, text=RMS.format(**PLAIN), feeds=feeds, ops=ops)
    check(rms_normalization, text=RMS.format(**GEMMA), feeds=feeds, ops=ops | {"Add": 1})


SKIP = """(float[1, T, 8] x, float[{residual}] r, float[8] w) => (float[1, T, 8] y, float[1, T, 8] z) {{
    s = Add(x, r)  n = RMSNormalization<axis = -1, epsilon = 1e-5>(s, w)  y = Relu(n)  z = Sqrt(s) }}"""


def test_skip_normalization():
    feeds = {"x": normal(1, 3, 8) ** 2, "r": normal(1, 5, 8)[:, :3] ** 2, "w": normal(8)}
    ops = {"SkipSimplifiedLayerNormalization": 1, "Relu": 1, "Sqrt": 1}
    check(skip_normalization, text=SKIP.format(residual="1, T, 8"), feeds=feeds, ops=ops)


@pytest.mark.parametrize("residual", ["8", "1, 1, 8"])
def test_a_sum_that_broadcasts_stays(residual):
    unchanged(skip_normalization, text=SKIP.format(residual=residual))


@pytest.mark.parametrize("change", [{"axis": "1"}, {"scale": "1, 1, 8"}, {"weight": "y = Add(scaled, w)"}])
def test_rms_normalization_of_another_kind_stays(change):
    unchanged(rms_normalization, text=RMS.format(**(PLAIN | change)))


def test_layer_normalization():
    feeds, ops = {"x": normal(1, 3, 8) + 5, "w": normal(8)}, {"LayerNormalization": 1}
    check(rms_normalization, layer_normalization, text=RMS.format(**CENTRED), feeds=feeds, ops=ops)
    unchanged(rms_normalization, layer_normalization, text=RMS.format(**PLAIN))
