"""Halves of rotary tables, as DeepSeek-V3 takes them, come from the kernel: ONNX Runtime's sines depend on windows."""

import numpy as np

from speccompile.compiler.lower.passes.fuse_rotary_tables import fuse_rotary_tables
from speccompile.compiler.lower.passes.halve_rotary_tables import halve_rotary_tables
from tests.compile.test_passes import check

TABLES = """(int64[B, T] positions) => (float[B, T, WIDTH] cosines, float[B, T, WIDTH] sines)
    <float[3] frequencies = {1.0, 0.25, 0.0625}> {
    axis = Constant<value_ints = [2]>()  start = Constant<value_ints = [0]>()  stop = Constant<value_ints = [WIDTH]>()
    one = Constant<value_ints = [1]>()  scale = Constant<value_float = 1.5>()
    spread = Unsqueeze(positions, axis)  floats = Cast<to = 1>(spread)  angles = Mul(floats, frequencies)
    both = Concat<axis = -1>(angles, angles)
    cosine = Cos(both)  cosines_whole = Mul(cosine, scale)  cosines = Slice(cosines_whole, start, stop, axis, one)
    sine = Sin(both)  sines_whole = Mul(sine, scale)  sines = Slice(sines_whole, start, stop, axis, one) }"""


def test_the_first_half_is_a_table_of_the_kernel():
    positions = np.arange(10).reshape(2, 5)
    text = TABLES.replace("WIDTH", "3")
    check(halve_rotary_tables, fuse_rotary_tables, text=text, feeds={"positions": positions}, ops={"RotaryTables": 1})


def test_a_whole_table_is_two_of_the_kernel():
    """Gemma 4 rotates heads behind their tokens; what is no half is cut off the whole table."""
    text, feeds = TABLES.replace("WIDTH", "2"), {"positions": np.arange(10).reshape(2, 5)}
    ops = {"RotaryTables": 1, "Concat": 2, "Slice": 2}
    check(halve_rotary_tables, fuse_rotary_tables, text=text, feeds=feeds, ops=ops)
