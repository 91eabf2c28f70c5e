"""Attention over int8 caches, on every path and with one thread and two: bit for bit what its order says, and for a row
the same wherever it lies. Codes and scales are torch's."""

import numpy as np
import onnx
import pytest
import torch
from hypothesis import strategies as st

from speccompile.compiler.lower import neutral
from speccompile.compiler.step import ops
from tests.compile import kernel_reference as reference
from tests.compile.kernel_cases import drawn, graph, values
from tests.compile.kernel_reference import Array, Floats
from tests.compile.kernel_runs import KernelRuns, needs_library, run_bodies, same_bits
from tests.compile.test_kernel_attend import bias_of

pytestmark = needs_library

CODES = ("key_rows", "value_rows", "key_cache", "value_cache")
INPUTS = (
    "query", *(name for each in CODES for name in (each, f"{each}_scales")), "length", "positions", "bias"
)  # fmt: skip


def model(op: str = "AttendInt8", scale: float = 0.3, softcap: float = 0.0, window: int = 0):
    feeds = dict.fromkeys(CODES, np.int8) | {"length": np.int64, "positions": np.int64}
    inputs = dict.fromkeys([*INPUTS, "sinks"] if "Sinks" in op else INPUTS)
    return graph(op, inputs, feeds=feeds, scale=scale, softcap=softcap, window=window, ring=0)


def encoded(rows: Floats) -> tuple[Array, Floats]:
    """Return codes and scales by the definition: max |x| / 127, halves to even."""
    scales = (np.abs(rows).max(-1, keepdims=True) / np.float32(127)).astype(np.float32)
    return np.rint(rows / np.where(scales == 0, np.float32(1), scales)).clip(-127, 127).astype(np.int8), scales


def fed(feeds: dict[str, Array]) -> dict[str, Array]:
    """Return the inputs of AttendInt8 for those of an Attend."""
    found = dict(feeds)
    for name in CODES:
        found[name], found[f"{name}_scales"] = encoded(feeds[name])
    return found


def attended(feeds: dict[str, Array], **settings: float) -> Floats:
    """Return what the reference gives for the inputs of AttendInt8."""
    scales = tuple(feeds[f"{name}_scales"] for name in CODES)
    plain = {name: array for name, array in feeds.items() if not name.endswith("_scales")}
    return reference.attend(
        **plain | {name: feeds[name].astype(np.float32) for name in CODES}, **settings, scales=scales
    )


def cases(draw: st.DrawFn, *, has_sinks: bool) -> dict[str, Array]:
    batch, tokens, groups = draw(st.integers(1, 2)), draw(st.integers(1, 11)), draw(st.integers(1, 3))
    rows, shared = draw(st.one_of(st.just(tokens), st.integers(1, 20))), draw(st.integers(1, 3))
    width = draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 128])))
    value_width, capacity = draw(st.integers(1, 70)), draw(st.integers(0, 40))
    length = np.array([draw(st.integers(0, capacity)) for _ in range(batch)])
    kinds = ("any", "ends", "halves")
    return {
        "query": values(draw, batch, tokens, groups * shared * width, kinds=kinds),
        "key_rows": values(draw, batch, groups, rows, width, kinds=kinds),
        "value_rows": values(draw, batch, groups, rows, value_width, kinds=kinds),
        "key_cache": values(draw, batch, groups, capacity + 1, width, kinds=kinds),
        "value_cache": values(draw, batch, groups, capacity + 1, value_width, kinds=kinds),
        "length": length,
        "positions": length[:, None] + np.array([[draw(st.integers(0, 20)) for _ in range(tokens)]] * batch),
        "bias": bias_of(draw, batch, tokens, rows),
    } | ({"sinks": values(draw, groups * shared)} if has_sinks else {})


@pytest.mark.parametrize("op", neutral.INT8_ATTENDS.values())
@drawn(16, 200)
def test_attention(op, data):
    feeds = fed(cases(data.draw, has_sinks="Sinks" in op))
    # What lies behind the committed rows is never read: it may be anything.
    for b, committed in enumerate(feeds["length"]):
        for name in ("key_cache", "value_cache"):
            feeds[f"{name}_scales"][b, :, committed:] = np.nan
    settings = {
        "scale": data.draw(st.sampled_from([0.125, 1.0, -0.3])),
        "softcap": data.draw(st.sampled_from([0.0, 0.0, 30.0])),
        "window": data.draw(st.sampled_from([0, 0, 1, 7])),
    }
    (found,) = KernelRuns(model(op, **settings)).run(feeds)
    same_bits(found, attended(feeds, **settings), "the kernels and the reference")


def test_many_queries_of_many_rows():
    """Attend where keys are turned out of their codes: 27 queries and 139 rows."""
    random, tokens, groups, width, length = np.random.default_rng(8), 9, 2, 64, 139
    shapes = {"query": (1, tokens, groups * 3 * width), "bias": (1, 1, tokens, tokens)}
    shapes |= dict.fromkeys(CODES[:2], (1, groups, tokens, width)) | dict.fromkeys(
        CODES[2:], (1, groups, length, width)
    )
    feeds = fed({name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})
    feeds |= {"length": np.array([length]), "positions": length + np.arange(tokens)[None]}
    (found,) = KernelRuns(model()).run(feeds)
    same_bits(found, attended(feeds, scale=0.3, softcap=0.0, window=0), "the kernels and the reference")


@pytest.mark.parametrize("op", [*neutral.INT8_ATTENDS.values(), *neutral.INT4_ATTENDS.values()])
def test_the_bodies_give_what_the_kernels_do(op):
    random, is_int4 = np.random.default_rng(3), op in neutral.INT4_ATTENDS.values()
    width = 18 if is_int4 else 16  # of values
    feeds = {
        "query": random.standard_normal((2, 5, 4 * 24)), "key_rows": random.standard_normal((2, 2, 5, 24)),
        "value_rows": random.standard_normal((2, 2, 5, width)), "key_cache": random.standard_normal((2, 2, 30, 24)),
        "value_cache": random.standard_normal((2, 2, 30, width)), "bias": np.zeros((2, 1, 5, 5)),
    } | ({"sinks": random.standard_normal(4)} if "Sinks" in op else {})  # fmt: skip
    feeds = (fed_int4 if is_int4 else fed)({name: array.astype(np.float32) for name, array in feeds.items()})
    feeds |= {"length": np.array([7, 0]), "positions": np.array([[7, 8, 9, 10, 11], [0, 1, 2, 3, 4]])}
    (found,), (body,) = KernelRuns(model(op)).run(feeds), run_bodies(model(op), feeds)
    np.testing.assert_allclose(found, body, rtol=1e-5, atol=1e-5)


def encoder(op: str) -> onnx.ModelProto:
    encode = graph(op, {"rows": None}, 2)
    encode.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
    return encode


@drawn(16, 200)
def test_codes_are_those_of_torch(data):
    draw = data.draw
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 80)), draw(st.integers(1, 130))
    rows = values(draw, *shape, kinds=("any", "ends", "halves"))
    encode = encoder("EncodeInt8")
    decode = graph("DecodeInt8", {"codes": None, "scales": None}, feeds={"codes": np.int8})
    codes, scales = KernelRuns(encode).run({"rows": rows})
    for one, other in zip((codes, scales), encoded(rows), strict=True):
        same_bits(one, other, "the kernels and the definition")
    for one, other in zip((codes, scales), run_bodies(encode, {"rows": rows}), strict=True):
        same_bits(one, other, "the kernels and the bodies")
    (decoded,) = KernelRuns(decode).run({"codes": codes, "scales": scales})
    np.testing.assert_array_equal(decoded, ops.quantize(torch.tensor(rows)).numpy())


def test_rows_of_zeros_and_of_the_smallest_numbers():
    rows = np.array([0.0, -0.0, 1e-45, 2e-43, 1e-38], np.float32)[:, None] * np.ones((1, 1, 5, 8), np.float32)
    encode = encoder("EncodeInt8")
    codes, scales = KernelRuns(encode).run({"rows": rows})
    assert codes[0, 0, :2].tolist() == [[0] * 8] * 2
    np.testing.assert_allclose(codes * scales, rows, atol=1e-43)


def encoded_int4(rows: Floats) -> tuple[Array, Floats]:
    """Return codes, two in a byte, and scales and least numbers, by the definition: 15 steps, halves to even."""
    least = rows.min(-1, keepdims=True)
    step = ((rows.max(-1, keepdims=True) - least) / np.float32(15)).astype(np.float32)
    codes = np.rint((rows - least) / np.where(step == 0, np.float32(1), step)).clip(0, 15).astype(np.uint8)
    pairs = (codes[..., ::2] | codes[..., 1::2] << 4) ^ 0x80
    return pairs.view(np.int8), np.concatenate([step, least], -1)


def fed_int4(feeds: dict[str, Array]) -> dict[str, Array]:
    """Return the inputs of AttendInt8Int4 for those of an Attend."""
    found = fed(feeds)
    for name in ("value_rows", "value_cache"):
        found[name], found[f"{name}_scales"] = encoded_int4(feeds[name])
    return found


@pytest.mark.parametrize("op", neutral.INT4_ATTENDS.values())
@drawn(16, 200)
def test_attention_over_values_in_four_bits(op, data):
    feeds = cases(data.draw, has_sinks="Sinks" in op)
    random, width = np.random.default_rng(data.draw(st.integers(0, 99))), 2 * data.draw(st.integers(1, 35))
    for name in CODES:
        size = (*feeds[name].shape[:3], width if "value" in name else feeds[name].shape[3])
        feeds[name] = random.standard_normal(size).astype(np.float32)
    feeds["query"] = random.standard_normal(feeds["query"].shape).astype(np.float32)
    settings = {
        "scale": data.draw(st.sampled_from([0.125, 1.0])), "softcap": data.draw(st.sampled_from([0.0, 0.0, 30.0])),
        "window": data.draw(st.sampled_from([0, 0, 1, 7])),
    }  # fmt: skip
    coded = fed_int4(feeds)
    values = {name: ops.quantize(torch.tensor(feeds[name]), 4).numpy() for name in ("value_rows", "value_cache")}
    for b, committed in enumerate(feeds["length"]):  # never read
        for name in ("key_cache", "value_cache"):
            coded[f"{name}_scales"][b, :, committed:] = np.nan
    (found,) = KernelRuns(model(op, **settings)).run(coded)
    floats = {name: ops.quantize(torch.tensor(feeds[name])).numpy() for name in ("key_rows", "key_cache")}
    expected = reference.attend(**(feeds | floats | values), **settings)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("op", "encode", "width", "length"), [("AttendInt8", fed, 40, 21), ("AttendInt8Int4", fed_int4, 44, 37)]
)
def test_a_row_is_the_same_in_the_window_and_in_the_cache(op, encode, width, length):
    """Move the border between committed and in-step rows: the result keeps its bits."""
    random, rows = np.random.default_rng(0), 9
    kernels, found = KernelRuns(model(op)), []
    keys, others = (random.standard_normal((1, 2, length, width)).astype(np.float32) for _ in range(2))
    query = random.standard_normal((1, 1, 4 * width)).astype(np.float32)
    for committed in range(length - rows, length):
        feeds = {
            "query": query, "key_rows": keys[:, :, committed:], "value_rows": others[:, :, committed:],
            "key_cache": keys, "value_cache": others, "length": np.array([committed]),
            "positions": np.array([[length]]), "bias": np.zeros((1, 1, 1, length - committed), np.float32),
        }  # fmt: skip
        found += kernels.run(encode(feeds))
    for each in found[1:]:
        same_bits(found[0], each, "two borders")


@drawn(16, 200)
def test_codes_of_four_bits_are_those_of_torch(data):
    draw = data.draw
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(0, 80)), 2 * draw(st.integers(1, 65))
    rows = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(np.float32)
    rows[..., draw(st.booleans()) :, :] *= draw(st.sampled_from([0.0, 1e-20, 1.0, 1e20]))
    encode = encoder("EncodeInt4")
    decode = graph("DecodeInt4", {"codes": None, "scales": None}, feeds={"codes": np.int8})
    codes, scales = KernelRuns(encode).run({"rows": rows})
    for one, other in zip((codes, scales), encoded_int4(rows), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip((codes, scales), run_bodies(encode, {"rows": rows}), strict=True):
        np.testing.assert_array_equal(one, other)
    expected = ops.quantize(torch.tensor(rows), 4).numpy()
    for run in (KernelRuns(decode).run, lambda feeds: run_bodies(decode, feeds)):
        np.testing.assert_array_equal(run({"codes": codes, "scales": scales})[0], expected)
