"""Convolutions and recurrences on every path and with one thread and two: bit for bit what their order says, and for a
token of any window what it is for the token alone."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import strategies as st

from speccompile.compiler.step import ops
from speccompile.runtime.devices.sessions import session_options
from tests.compile import kernel_reference as reference
from tests.compile.kernel_cases import drawn, graph, values
from tests.compile.kernel_reference import Array, Floats
from tests.compile.kernel_runs import KernelRuns, needs_library, run_bodies, same_bits, with_bodies

pytestmark = needs_library

INTEGERS = {"length": np.int64, "count": np.int64}
WINDOWS = (*range(1, 10), 17, 64)


def node(op: str, *names: str, **attributes: int) -> onnx.ModelProto:
    return graph(op, dict.fromkeys(names), feeds=INTEGERS, **attributes)


def of_shapes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> onnx.ModelProto:
    """Return the same, whose inputs have the rank of what is fed: bodies with a Scan want to know it."""
    for fed in model.graph.input:
        for axis in range(feeds[fed.name].ndim):
            fed.type.tensor_type.shape.dim.add().dim_param = f"{fed.name}_{axis}"
    return model


def recurrence(op: str, *, delta: bool) -> onnx.ModelProto:
    ends = ("state", "length") if op == "Recur" else ("state", "length", "count")
    rows = ("key", "value", "decay", "beta") if delta else ("key", "value", "decay")
    return node(op + "Delta" * delta, *(("query",) if op == "Recur" else ()), *rows, *ends)


def floats(random: np.random.Generator, *shape: int) -> Floats:
    return random.standard_normal(shape).astype(np.float32)


def rows_of(
    random: np.random.Generator, tokens: int, *, batch: int, groups: int, shared: int, key: int, value: int, wide: bool,
    delta: bool,
) -> dict[str, Array]:  # fmt: skip
    """Return rows of so many tokens, with keys short enough for a delta rule to forget and not to grow."""
    heads = groups * shared
    rows = {
        "query": floats(random, batch, groups, tokens, key),
        "key": floats(random, batch, groups, tokens, key) / np.float32(key**0.5),
        "value": floats(random, batch, heads, tokens, value),
        "decay": -np.abs(floats(random, batch, heads, tokens, key if wide else 1)),
    }
    return rows | ({"beta": random.random((batch, heads, tokens, 1)).astype(np.float32)} if delta else {})


def checked(rows, ends, *, delta):
    """Return contexts and next state of a recurrence, of which all paths give the reference's bits."""
    given = rows | ends
    recur, advance = (KernelRuns(recurrence(op, delta=delta)) for op in ("Recur", "Advance"))
    (context,) = recur.run({name: array for name, array in given.items() if name != "count"})
    (updated,) = advance.run({name: array for name, array in given.items() if name != "query"})
    found, after = reference.recur(**given)
    same_bits(context, found, "the kernels and the reference")
    same_bits(updated, after, "the kernels and the reference")
    return context, updated


SHAPES = [
    {"groups": 2, "shared": 2, "key": 20, "value": 24},
    {"groups": 1, "shared": 3, "key": 16, "value": 70},
    {"groups": 3, "shared": 1, "key": 128, "value": 128},
    {"groups": 1, "shared": 40, "key": 9, "value": 1},
    {"groups": 1, "shared": 5, "key": 1, "value": 1},
]


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_recurrence_has_one_order(shape, wide, delta):
    """Compare all paths with the reference's bits, and closely with the neutral op in torch."""
    random = np.random.default_rng(3)
    rows = rows_of(random, 7, batch=2, wide=wide, delta=delta, **shape)
    state = floats(random, 2, shape["groups"] * shape["shared"], shape["key"], shape["value"])
    ends = {"state": state, "length": np.array([5, 0]), "count": np.array([4, 7])}
    context, updated = checked(rows, ends, delta=delta)

    tensors = {name: torch.from_numpy(array) for name, array in (rows | ends).items()}
    query, count, beta = tensors.pop("query"), tensors.pop("count"), tensors.pop("beta", None)
    eager = ops.recur(query, beta=beta, **tensors), ops.advance(beta=beta, count=count, **tensors)
    for got, expected in zip((context, updated), eager, strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=2e-6 * expected.abs().max().item())


@drawn(30, 120)
def test_any_numbers(data):
    draw = data.draw
    batch, groups, shared, tokens = (draw(st.integers(1, most)) for most in (2, 3, 3, 6))
    key, value = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    heads, delta = groups * shared, draw(st.booleans())
    rows = {
        "query": values(draw, batch, groups, tokens, key),
        "key": values(draw, batch, groups, tokens, key),
        "value": values(draw, batch, heads, tokens, value),
        "decay": values(draw, batch, heads, tokens, draw(st.sampled_from([1, key]))),
    }
    rows |= {"beta": values(draw, batch, heads, tokens, 1)} if delta else {}
    ends = {
        "state": values(draw, batch, heads, key, value),
        "length": np.array([draw(st.integers(0, 2)) for _ in range(batch)]),
        "count": np.array([draw(st.integers(0, tokens)) for _ in range(batch)]),
    }
    checked(rows, ends, delta=delta)


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_windows_of_any_width(shape, delta):
    """Run 64 tokens in windows: outputs and states are those of one token at a time."""
    random = np.random.default_rng(5)
    rows = rows_of(random, 64, batch=1, wide=False, delta=delta, **shape)
    recur, advance = (KernelRuns(recurrence(op, delta=delta)) for op in ("Recur", "Advance"))
    heads = shape["groups"] * shape["shared"]

    def run(width: int) -> tuple[Floats, Floats]:
        state, contexts = np.full((1, heads, shape["key"], shape["value"]), np.nan, np.float32), []
        for start in range(0, 64, width):
            window = {name: np.ascontiguousarray(array[:, :, start : start + width]) for name, array in rows.items()}
            ends = {"state": state, "length": np.array([start])}
            contexts.append(recur.run(window | ends)[0])
            taken = {"count": np.array([window["value"].shape[2]])}
            (state,) = advance.run({n: a for n, a in (window | ends | taken).items() if n != "query"})
        return np.concatenate(contexts, 2), state

    alone, last = run(1)
    for width in WINDOWS[1:]:
        context, state = run(width)
        same_bits(context, alone, f"windows of {width} and of one")
        same_bits(state, last, f"the state after windows of {width} and of one")


@pytest.mark.parametrize("silu", [0, 1])
@pytest.mark.parametrize(("depth", "channels"), [(4, 70), (1, 16), (3, 5)])
def test_a_convolution(depth, channels, silu):
    random = np.random.default_rng(depth)
    rows, state = floats(random, 2, 1, 64, channels), floats(random, 2, 1, depth - 1, channels)
    feeds = {"rows": rows, "state": state, "taps": floats(random, depth, channels), "bias": floats(random, channels)}
    runs = KernelRuns(node("Convolve", *feeds, silu=silu))
    (whole,) = runs.run(feeds)
    same_bits(whole, reference.convolve(**feeds, is_silu=bool(silu)), "the kernels and the reference")
    behind = np.concatenate([state, rows], 2)
    for width in WINDOWS[:-1]:
        start = width * 7 % (64 - width)
        window = {"rows": rows[:, :, start : start + width], "state": behind[:, :, start : start + depth - 1]}
        (found,) = runs.run(feeds | {name: np.ascontiguousarray(array) for name, array in window.items()})
        same_bits(found, whole[:, :, start : start + width], f"{width} rows from {start} on")


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("length", [0, 9])
def test_a_convolution_moves_on(count, length):
    random = np.random.default_rng(count)
    rows, state = floats(random, 2, 1, 5, 6), floats(random, 2, 1, 3, 6)
    feeds = {"rows": rows, "state": state, "length": np.array([length, 1]), "count": np.array([count, 2])}
    (found,) = KernelRuns(node("Shift", *feeds)).run(feeds)
    tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
    same_bits(found, ops.shift(**tensors).numpy(), "the kernels and torch")


@pytest.mark.parametrize("op", ["Shift", "Advance", "AdvanceDelta"])
def test_states_move_on_where_they_lie(op):
    """Update states in place: slots that commit no token stay as they are, whatever they hold."""
    random = np.random.default_rng(1)
    feeds: dict[str, Array] = {"length": np.array([3, 2, 0, 0]), "count": np.array([5, 0, 0, 2])}
    if op == "Shift":
        feeds = {"rows": floats(random, 4, 1, 5, 6), "state": floats(random, 4, 1, 7, 6)} | feeds
        model = node(op, *feeds)
    else:
        delta = op == "AdvanceDelta"
        rows = rows_of(random, 5, batch=4, groups=1, shared=2, key=20, value=37, wide=False, delta=delta)
        feeds = {n: a for n, a in rows.items() if n != "query"} | {"state": floats(random, 4, 2, 20, 37)} | feeds
        model = recurrence("Advance", delta=delta)
    feeds["state"][2] = np.nan
    (beside,) = KernelRuns(model).run(feeds)
    session = ort.InferenceSession(with_bodies(model).SerializeToString(), session_options(2), ["CPUExecutionProvider"])
    before = feeds["state"].copy()
    given = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    binding = session.io_binding()
    for name, value in given.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("y0", given["state"])
    session.run_with_iobinding(binding)
    updated = given["state"].numpy()
    same_bits(updated, beside, "in place and beside")
    same_bits(updated[1:3].view(np.int32), before[1:3].view(np.int32), "rows from which nothing is taken")


BODIES = {
    "Recur": lambda: recurrence("Recur", delta=False),
    "RecurDelta": lambda: recurrence("Recur", delta=True),
    "Advance": lambda: recurrence("Advance", delta=False),
    "AdvanceDelta": lambda: recurrence("Advance", delta=True),
}


@pytest.mark.parametrize("op", BODIES)
def test_bodies_of_recurrences(op):
    """Run the function bodies, which stand in for a missing library, and compare but for rounding."""
    random, delta = np.random.default_rng(2), op.endswith("Delta")
    rows = rows_of(random, 4, batch=2, groups=2, shared=2, key=8, value=6, wide=False, delta=delta)
    ends = {"state": floats(random, 2, 4, 8, 6), "length": np.array([0, 3]), "count": np.array([3, 0])}
    drop = "count" if op.startswith("Recur") else "query"
    feeds = {name: array for name, array in (rows | ends).items() if name != drop}
    model = of_shapes(BODIES[op](), feeds)
    for got, expected in zip(KernelRuns(model).run(feeds), run_bodies(model, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_bodies_of_convolutions():
    random = np.random.default_rng(4)
    feeds = {"rows": floats(random, 2, 1, 5, 6), "state": floats(random, 2, 1, 3, 6)}
    more = {"taps": floats(random, 4, 6), "bias": floats(random, 6)}
    for silu in (0, 1):
        model = of_shapes(node("Convolve", *feeds, *more, silu=silu), feeds | more)
        (got,), (expected,) = KernelRuns(model).run(feeds | more), run_bodies(model, feeds | more)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    moved = feeds | {"length": np.array([0, 3]), "count": np.array([2, 0])}
    model = node("Shift", *moved)
    same_bits(KernelRuns(model).run(moved)[0], run_bodies(model, moved)[0], "the kernel and its body")


@pytest.mark.parametrize(("op", "exact"), [("Softplus", lambda x: np.logaddexp(0, x)), ("Log", np.log)])
def test_softplus_and_the_logarithm(op, exact):
    """To two units in the last place, each number for itself."""
    random = np.random.default_rng(0)
    ends = [0.0, -0.0, 1e-45, 1e-38, 1.0, 0.99999994, 3.4e38, np.inf, -np.inf, np.nan, -1.0, 87.5, -86.0, -103.0]
    x = np.concatenate([random.standard_normal(5000) * 10, ends]).astype(np.float32)
    runs = KernelRuns(graph(op, {"x": None}))
    (y,) = runs.run({"x": x})
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.float64))
    normal = ~(np.abs(expected) < 1.2e-38)  # below that the kernels' exponential is zero
    np.testing.assert_allclose(y[normal], expected[normal].astype(np.float32), rtol=3e-7, atol=0)
    assert (np.abs(y[~normal]) < 1.2e-38).all()
    for width in WINDOWS:
        same_bits(runs.run({"x": x[width : 2 * width]})[0], y[width : 2 * width], f"{width} numbers")
