"""A host may have told its threads to take small numbers for zeros; the kernels round as they always do."""

from contextlib import contextmanager

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from speccompile import native
from speccompile.compiler.lower.native import layouts
from speccompile.runtime.devices.sessions import session_options
from tests.compile import kernel_cases as cases
from tests.compile.kernel_cases import graph
from tests.compile.kernel_reference import Array
from tests.compile.kernel_runs import needs_library, same_bits, taken

pytestmark = needs_library

SMALL = np.float32(1e-40)


def rows(*shape: int) -> Array:
    return (np.random.default_rng(0).standard_normal(shape) * SMALL).astype(np.float32)


def int8_of(columns: int) -> dict[str, Array]:
    numbers = np.random.default_rng(0).integers(-128, 128, (16, columns)).astype(np.int8)
    return {
        "numbers": layouts.packed_int8(lambda part: numbers[:, part], 16, columns),
        "scales": layouts.padded_columns(rows(columns)),
    }


def linear(op: str) -> onnx.ModelProto:
    random, columns = np.random.default_rng(0), 1100
    if op == "LinearInt8":
        return cases.linear_int8(64, columns, random, ends=False, bias=None).model
    if op == "LinearInt4":
        return cases.linear_int4(64, columns, random, ends=False, bias=None, block=32).model
    dtype = cases.BFLOAT16 if op == "LinearBFloat16" else np.dtype(np.float32)
    return cases.linear_floats(rows(64, columns), dtype, bias=None).model


def model_of(op: str) -> onnx.ModelProto:
    if op.startswith("Linear"):
        return linear(op)
    if op == "EmbedInt8":
        return graph(op, {"ids": None, **int8_of(20)}, feeds={"ids": np.int64}, columns=20, depth=16)
    if op == "RmsNorm":
        return graph(op, {"x": None, "weight": np.ones(2000, np.float32)}, epsilon=1e-5)
    if op == "GatedSilu":
        return graph(op, {"gate": None, "up": None}, width=2000, gate_offset=0, up_offset=1)
    frequencies = np.array([1e-41, 1.0], np.float32)
    return graph(op, {"positions": None, "frequencies": frequencies}, 2, feeds={"positions": np.int64}, scale=1.0)


WIDE = np.random.default_rng(1).standard_normal((9, 64)).astype(np.float32)
FEEDS = {
    "LinearFloat32": {"x": WIDE},
    "LinearBFloat16": {"x": WIDE},
    "LinearInt8": {"x": WIDE * np.float32(1e-15)},
    "LinearInt4": {"x": WIDE * np.float32(1e-15)},
    "EmbedInt8": {"ids": np.arange(20)},
    "RmsNorm": {"x": rows(40, 2000)},
    "GatedSilu": {"gate": rows(40, 2001), "up": np.ones((40, 2001), np.float32)},
    "RotaryTables": {"positions": np.array([[1, 2, 3]])},
}
"""Operator -> what makes it give small numbers."""


@contextmanager
def small_numbers_are_zeros():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor always rounds as IEEE 754 says")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("op", FEEDS)
def test_small_numbers_stay(op):
    model, feeds = model_of(op).SerializeToString(), FEEDS[op]
    # First: the first session of a process decides for the thread that opens it, for good.
    plain = ort.InferenceSession(model, session_options(1), ["CPUExecutionProvider"])
    options = session_options(2)
    options.add_session_config_entry("session.set_denormal_as_zero", "1")  # its own threads; below: the one that asks
    flushed = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
    for path in native.paths():
        with taken(path):
            expected = plain.run(None, feeds)
            with small_numbers_are_zeros():
                found = flushed.run(None, feeds)
        assert any(((np.abs(each) < 1e-37) & (each != 0)).any() for each in expected)
        for one, other in zip(found, expected, strict=True):
            same_bits(one, other, f"{path}, flushing and not")
