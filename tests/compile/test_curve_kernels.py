"""Sines and cosines of angles in any shape come from the kernel, whose bits do not depend on the window."""

import pytest

from speccompile import native
from speccompile.compiler.lower.passes.curve_kernels import curve_kernels
from tests.compile.kernel_runs import KernelRuns
from tests.compile.test_passes import apply, check, graph, normal, unchanged

BOTH = """(float[3, B, T, 5] x) => (float[3, B, T, 5] c, float[3, B, T, 5] s) {
    angles = Add(x, x)  c = Cos(angles)  s = Sin(angles) }"""
SINE = "(float[N, 5] x) => (float[N, 5] s) { angles = Add(x, x)  s = Sin(angles) }"
ANGLES = 1000 * normal(3, 2, 17, 5)


def test_one_kernel_gives_sines_and_cosines():
    ops = {"Add": 1, "Reshape": 3, "Shape": 1, "RotaryTables": 1}
    check(curve_kernels, text=BOTH, feeds={"x": ANGLES}, ops=ops)
    check(curve_kernels, text=SINE, feeds={"x": ANGLES[0, 0]}, ops=ops | {"Reshape": 2})


@pytest.mark.skipif(not native.library(), reason="needs the kernels")
def test_an_angle_has_the_same_bits_in_every_window():
    _, model, _ = apply(curve_kernels, before=graph(BOTH))
    kernels = KernelRuns(model)
    whole = kernels.run({"x": ANGLES})
    for token in range(ANGLES.shape[2]):
        alone = kernels.run({"x": ANGLES[:, :, token : token + 1].copy()})
        for got, expected in zip(alone, whole, strict=True):
            assert got.tobytes() == expected[:, :, token : token + 1].tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "(float[2] x) => (float[2] y) <float[2] w = {1, 2}> { z = Sin(w)  y = Add(x, z) }",
        "(float[2] x) => (float[2] y) { z = Add(x, x)  unused = Cos(z)  y = Add(z, x) }",
        "(double[2] x) => (double[2] y) { z = Add(x, x)  y = Cos(z) }",
    ],
    ids=["weights", "unused", "other floats"],
)
def test_other_curves_stay(text):
    unchanged(curve_kernels, text=text)
