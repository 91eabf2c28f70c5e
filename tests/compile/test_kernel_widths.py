"""A row of a window of 1 to 64 gives what it gives alone, bit for bit, wherever it stands: on every path, with one
thread and with two."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from speccompile import native
from tests.compile import kernel_cases as cases
from tests.compile.kernel_cases import BFLOAT16, graph
from tests.compile.kernel_reference import Array
from tests.compile.kernel_runs import KernelRuns, needs_library, same_bits

pytestmark = needs_library

WIDEST = 64


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def linear(precision: str, depth: int, columns: int, block: int = 0) -> onnx.ModelProto:
    random, bias = np.random.default_rng(depth), floats(columns)
    if precision == "Int8":
        return cases.linear_int8(depth, columns, random, ends=False, bias=bias).model
    if precision == "Int4":
        return cases.linear_int4(depth, columns, random, ends=False, bias=bias, block=block).model
    dtype = np.dtype(np.float32) if precision == "Float32" else BFLOAT16
    return cases.linear_floats(floats(depth, columns), dtype, bias=bias).model


def norm(op: str, depth: int, *names: str) -> onnx.ModelProto:
    return graph(op, {"x": None, **{name: floats(depth) for name in names}}, epsilon=1e-5)


# Depth -> a model: deep enough to be computed in parts, or with columns enough for two threads, and a last tile that is
# not whole.
MODELS: dict[str, tuple[int, Callable[[int], onnx.ModelProto]]] = {
    "Float32, deep": (1100, lambda depth: linear("Float32", depth, 23)),
    "Float32": (200, lambda depth: linear("Float32", depth, 150)),
    "BFloat16": (200, lambda depth: linear("BFloat16", depth, 261)),
    "Int8": (300, lambda depth: linear("Int8", depth, 261)),
    "Int4 in blocks of 32": (230, lambda depth: linear("Int4", depth, 525, 32)),
    "Int4 in blocks of 64": (320, lambda depth: linear("Int4", depth, 390, 64)),
    "Int4 in blocks of 128": (300, lambda depth: linear("Int4", depth, 390, 128)),
    "RmsNorm": (700, lambda depth: norm("RmsNorm", depth, "weight")),
    "LayerNorm": (700, lambda depth: norm("LayerNorm", depth, "weight", "bias")),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_row_gives_what_it_gives_alone(name):
    depth, make = MODELS[name]
    runs = KernelRuns(make(depth))
    x = floats(WIDEST, depth)
    x[5, 3], x[20], x[33, 1] = np.nan, 0, np.inf  # which must not touch the rows beside them
    alone = np.concatenate([runs.run({"x": x[[row]]})[0] for row in range(WIDEST)])
    for width in range(1, WIDEST + 1):
        first = width * 7 % (WIDEST - width + 1)
        for path in native.paths():
            for found in runs.on(path, {"x": x[first : first + width]}):
                same_bits(found[0], alone[first : first + width], f"{name}, {path}: {width} rows from {first} on")
