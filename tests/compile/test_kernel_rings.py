"""Attention over rings: bit for bit that over a cache with a row for every position, on every path, in eager torch too;
the bodies and the neutral op give the same numbers."""

import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import strategies as st
from onnx import TensorProto, helper

from speccompile.compiler.lower import neutral
from speccompile.compiler.step import ops
from tests.compile.kernel_cases import drawn, graph, values
from tests.compile.kernel_reference import Array
from tests.compile.kernel_runs import KernelRuns, needs_library, run_bodies, same_bits
from tests.compile.test_kernel_attend import NAMES, bias_of
from tests.compile.test_kernel_codes import CODES, INPUTS, fed

LONGEST, KINDS = 70, ("any", "ends", "halves")
CACHES = ("key_cache", "value_cache")


def model(op: str, *, ring: int, window: int, softcap: float = 0.0):
    is_coded = "Int8" in op
    dtypes = {"length": np.int64, "positions": np.int64} | (dict.fromkeys(CODES, np.int8) if is_coded else {})
    names = INPUTS if is_coded else NAMES
    inputs = dict.fromkeys([*names, "sinks"] if "Sinks" in op else names)
    return graph(op, inputs, feeds=dtypes, scale=0.3, softcap=softcap, window=window, ring=ring)


def turned(feeds: dict[str, Array], size: int, more: int) -> dict[str, Array]:
    """Return the inputs with their caches as rings: position p in row p mod size, up to `more` positions, of rejected
    rows, behind the committed ones; what nobody has written is no number."""
    found = dict(feeds)
    for name in [each for each in feeds if each.startswith(CACHES)]:
        whole = feeds[name]
        fill = np.nan if whole.dtype == np.float32 else 77
        found[name] = np.full((*whole.shape[:2], size, whole.shape[3]), fill, whole.dtype)
        for b, length in enumerate(feeds["length"]):
            for position in range(max(0, length + more - size), length + more):
                row = whole[b, :, position] if position < length else fill
                found[name][b, :, position % size] = row
    return found


def case(draw: st.DrawFn, op: str, *, tame: bool = False) -> tuple[dict[str, Array], int, int, int]:
    """Return the inputs over full caches, a window, rows of a ring that holds it, and rejected rows behind the text.
    tame: numbers whose sums hardly depend on their order."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 16)))

    def numbers(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32) if tame else values(draw, *shape, kinds=KINDS)

    batch, tokens, groups, shared = (draw(st.integers(1, most)) for most in (2, 9, 2, 3))
    width, value_width = draw(st.one_of(st.integers(1, 20), st.just(64))), draw(st.integers(1, 40))
    window, more = draw(st.integers(1, 20)), draw(st.integers(0, 12))
    length = np.array([draw(st.integers(0, LONGEST)) for _ in range(batch)])
    feeds = {
        "query": numbers(batch, tokens, groups * shared * (width + value_width * ("Latent" in op))),
        "key_rows": numbers(batch, groups, tokens, width),
        "value_rows": numbers(batch, groups, tokens, value_width),
        "key_cache": numbers(batch, groups, LONGEST + 1, width),
        "value_cache": numbers(batch, groups, LONGEST + 1, value_width),
        "length": length,
        "positions": length[:, None] + np.arange(tokens),
        "bias": np.zeros((batch, 1, tokens, tokens), np.float32) if tame else bias_of(draw, batch, tokens, tokens),
    } | ({"sinks": numbers(groups * shared)} if "Sinks" in op else {})  # fmt: skip
    size = window - 1 + more + draw(st.integers(0 if window + more > 1 else 1, 9))
    return fed(feeds) if "Int8" in op else feeds, window, size, more


@needs_library
@pytest.mark.parametrize("op", [*neutral.ATTENDS, *neutral.INT8_ATTENDS.values()])
@drawn(16, 300)
def test_a_ring_gives_the_bits_of_a_full_cache(op, data):
    feeds, window, size, more = case(data.draw, op)
    softcap = data.draw(st.sampled_from([0.0, 30.0]))
    (expected,) = KernelRuns(model(op, ring=0, window=window, softcap=softcap)).run(feeds)
    (found,) = KernelRuns(model(op, ring=1, window=window, softcap=softcap)).run(turned(feeds, size, more))
    same_bits(expected, found, "a full cache and a ring")


@pytest.mark.parametrize("op", [*neutral.ATTENDS, *neutral.INT8_ATTENDS.values()])
@drawn(20, 100)
def test_so_do_the_bodies(op, data):
    feeds, window, size, more = case(data.draw, op, tame=True)
    (expected,) = run_bodies(model(op, ring=0, window=window), feeds)
    written = {name: np.nan_to_num(each, nan=7.0) for name, each in turned(feeds, size, more).items()}
    (found,) = run_bodies(model(op, ring=1, window=window), written)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@drawn(16, 200)
def test_so_do_eager_torch_and_the_neutral_op(data):
    feeds, window, size, more = case(data.draw, "Attend", tame=True)
    batch, _, tokens, width = feeds["key_rows"].shape
    feeds["query"] = feeds["query"].reshape(batch, tokens, -1, width).transpose(0, 2, 1, 3)
    rings = {name: np.nan_to_num(each, nan=7.0) for name, each in turned(feeds, size, more).items()}
    settings = {"scale": 0.3, "softcap": 0.0, "window": window}
    expected, found = (
        ops.attend(*(torch.tensor(given[name]) for name in NAMES), **settings, is_ring=is_ring)
        for given, is_ring in ((feeds, False), (rings, True))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    node = helper.make_node("Attend", NAMES, ["context"], domain=neutral.DOMAIN, ring=1, **settings)
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(name, kinds[rings[name].dtype], rings[name].shape) for name in NAMES]
    output = helper.make_tensor_value_info("context", TensorProto.FLOAT, None)
    whole = helper.make_model(
        helper.make_graph([node], "ring", inputs, [output]), functions=neutral.functions(), ir_version=10,
        opset_imports=[helper.make_opsetid("", neutral.OPSET), helper.make_opsetid(neutral.DOMAIN, 1)],
    )  # fmt: skip
    session = ort.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.run(None, {name: rings[name] for name in NAMES})
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


@drawn(30, 100)
def test_commits_go_on_at_the_beginning(data):
    draw = data.draw
    batch, size = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    rows = draw(st.integers(1, size))
    length = np.array([draw(st.integers(0, 90)) for _ in range(batch)])
    buffer, written = values(draw, batch, 2, size, 3), values(draw, batch, 2, rows, 3)
    expected = buffer.copy()
    for b in range(batch):
        for row in range(rows):
            expected[b, :, (length[b] + row) % size] = written[b, :, row]
    found = ops.commit(torch.tensor(buffer), torch.tensor(written), torch.tensor(length), 2, True)
    same_bits(expected, found.numpy(), "the definition and torch")
    node = helper.make_node("TensorScatter", ["c", "r", "l"], ["o"], axis=2, mode=neutral.CIRCULAR)
    shapes = {
        "c": (TensorProto.FLOAT, buffer.shape), "r": (TensorProto.FLOAT, written.shape),
        "l": (TensorProto.INT64, length.shape),
    }  # fmt: skip
    whole = helper.make_graph(
        [node], "commit", [helper.make_tensor_value_info(name, *each) for name, each in shapes.items()],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, buffer.shape)],
    )  # fmt: skip
    made = helper.make_model(whole, opset_imports=[helper.make_opsetid("", neutral.OPSET)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    (given,) = session.run(None, {"c": buffer, "r": written, "l": length})
    same_bits(expected, given, "the definition and TensorScatter")
