"""How far two right computations may lie apart."""

import pytest

from speccompile.compiler.prove.tolerance import TOLERANCE, tolerance


@pytest.mark.parametrize("layers", [1, 4, 16, 80])
def test_float32_has_one_tolerance_whatever_the_depth(layers):
    assert tolerance("float32", layers) == TOLERANCE["float32"]


@pytest.mark.parametrize("precision", [word for word in TOLERANCE if word != "float32"])
def test_rounding_adds_up_as_independent_errors_do(precision):
    assert tolerance(precision, 2) == tolerance(precision, 4) == TOLERANCE[precision]
    assert tolerance(precision, 64) == pytest.approx(2 * tolerance(precision, 16))
