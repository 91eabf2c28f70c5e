"""Products of windows with weights, on every path and with one thread and two: bit for bit what integers say."""

import numpy as np
import pytest
from hypothesis import strategies as st

from speccompile.compiler.lower.native import layouts
from tests.compile import kernel_cases as cases
from tests.compile.kernel_cases import BFLOAT16, Linear, drawn, graph
from tests.compile.kernel_reference import Floats
from tests.compile.kernel_runs import KernelRuns, needs_library, same_bits

pytestmark = needs_library


def agree(linear: Linear, x: Floats) -> None:
    (found,) = KernelRuns(linear.model).run({"x": x})
    same_bits(found, linear.product(x), "the kernels and the reference")


def bias_of(draw: st.DrawFn, columns: int) -> Floats | None:
    """Return a bias or none: a single zero, which is the bias where there is a single column."""
    return cases.values(draw, columns, kinds=("any", "extremes")) if columns == 1 or draw(st.booleans()) else None


@drawn(40, 200)
def test_int8(data):
    rows, depth, columns = data.draw(cases.sizes(parts=(512, 129), deep=(1000, 1300, 20)))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    linear = cases.linear_int8(depth, columns, random, ends=data.draw(st.booleans()), bias=bias_of(data.draw, columns))
    agree(linear, cases.values(data.draw, rows, depth))


@drawn(70, 400)
def test_int4(data):
    rows, depth, columns = data.draw(cases.sizes(parts=(512, 257), deep=(200, 700, 40)))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    ends, block = data.draw(st.booleans()), data.draw(st.sampled_from([32, 64, 128]))
    linear = cases.linear_int4(depth, columns, random, ends=ends, bias=bias_of(data.draw, columns), block=block)
    agree(linear, cases.values(data.draw, rows, depth))


@pytest.mark.parametrize("bits", [4, 8])
@drawn(40, 200)
def test_codes_of_gguf(bits, data):
    rows, depth, columns = data.draw(cases.sizes(parts=(512, 129), deep=(200, 700, 40)))
    random, block = np.random.default_rng(data.draw(st.integers(0, 99))), data.draw(st.sampled_from([16, 32]))
    linear = cases.linear_codes(
        bits, -(-depth // block) * block, columns, random, ends=data.draw(st.booleans()), block=block,
        bias=bias_of(data.draw, columns), has_offsets=data.draw(st.booleans()),
    )  # fmt: skip
    agree(linear, cases.values(data.draw, rows, -(-depth // block) * block))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16], ids=str)
@drawn(30, 120)
def test_floats(dtype, data):
    """Deep ones are computed in parts where there are many rows, and their sums taken up again."""
    rows, depth, columns = data.draw(
        cases.sizes(parts=(250, 129 if dtype == np.float32 else 193), deep=(1020, 2060, 6))
    )
    weight = cases.values(data.draw, depth, columns, kinds=("any", "extremes"))
    linear = cases.linear_floats(weight, dtype, bias=bias_of(data.draw, columns))
    agree(linear, cases.values(data.draw, rows, depth, kinds=("any", "extremes")))


@pytest.mark.parametrize("depth", [1, 5, 64, 131])
@pytest.mark.parametrize("word", ["Float32", "BFloat16", "Int8"])
def test_rows_of_a_table(word, depth):
    columns, random = 37, np.random.default_rng(depth)
    ids = np.array([[0, 36, 15], [16, 16, 31]])
    if word == "Int8":
        numbers = random.integers(-128, 128, (depth, columns)).astype(np.int8)
        scales = cases.scales_of(random, columns)
        constants = {
            "numbers": layouts.packed_int8(lambda part: numbers[:, part], depth, columns),
            "scales": layouts.padded_columns(scales),
        }
        table = numbers.astype(np.float32) * scales
    else:
        dtype = np.dtype(np.float32) if word == "Float32" else BFLOAT16
        table = random.standard_normal((depth, columns)).astype(np.float32)
        table.reshape(-1)[: len(cases.EXTREMES)] = cases.EXTREMES[: table.size]
        constants, table = {"table": layouts.packed_floats(table, dtype)}, table.astype(dtype).astype(np.float32)
    model = graph(f"Embed{word}", {"ids": None, **constants}, feeds={"ids": np.int64}, columns=columns, depth=depth)
    (found,) = KernelRuns(model).run({"ids": ids})
    same_bits(found, table.T[ids], "the kernels and the table")
