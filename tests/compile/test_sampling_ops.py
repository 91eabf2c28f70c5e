"""Nucleus and Draw: eager torch, ONNX functions and both lowerings against their definition in float64."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from speccompile.compiler.engines import Limits, make_settings, process
from speccompile.compiler.lower import onnxruntime as cpu
from speccompile.compiler.lower import static_cache
from speccompile.compiler.step import ops
from speccompile.contract import Graph, Tensor
from tests.compile.test_passes import Feeds, graph

ALMOST_ONE = np.float32(1 - 2**-24)
FORMS: dict[str, Callable[[ir.Model], object]] = {
    "neutral": lambda model: None,
    "cpu": cpu.lower,
    "masked": static_cache.lower,
}

NUCLEUS = """(float[{batch}, R, {size}] probs, int64[{batch}] top_k, float[{batch}] top_p, float[{batch}] min_p)
    => (float[{batch}, R] threshold, float[{batch}, R] mass) {{
    threshold, mass = speccompile.Nucleus(probs, top_k, top_p, min_p) }}"""
DRAW = """(float[{batch}, R, {size}] weights, float[{batch}, R] threshold, float[{batch}, R] uniforms)
    => (int64[{batch}, R] tokens) {{ tokens = speccompile.Draw(weights, threshold, uniforms) }}"""
BOTH = """(float[1, R, {size}] probs, int64[1] top_k, float[1] top_p, float[1] min_p, float[1, R] uniforms)
    => (int64[1, R] tokens, float[1, R] mass) {{
    threshold, mass = speccompile.Nucleus(probs, top_k, top_p, min_p)
    tokens = speccompile.Draw(probs, threshold, uniforms) }}"""


ALLOW = """(float[{batch}, R, {size}] logits, bool[{batch}, R, A] allowed)
    => (float[{batch}, R, {size}] possible, int64[{batch}, R] best) {{
    possible = speccompile.Allow(logits, allowed)
    best = ArgMax <axis = -1, keepdims = 0> (possible) }}"""


@cache
def session(text: str, form: str) -> ort.InferenceSession:
    model = ir.from_proto(graph(text))
    FORMS[form](model)
    onnx.checker.check_model(after := ir.to_proto(model))
    return ort.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])


def distributions(batch: int, rows: int, size: int, *, flat: bool = False) -> np.ndarray:
    logits = torch.randn((batch, rows, size), generator=torch.Generator().manual_seed(size)) * (0.1 if flat else 3)
    return torch.softmax(logits, -1).numpy()


def settings(*rows: tuple[int, float, float]) -> Feeds:
    top_k, top_p, min_p = zip(*rows, strict=True)
    return {"top_k": np.array(top_k), "top_p": np.array(top_p, np.float32), "min_p": np.array(min_p, np.float32)}


def kept(probs: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Return which of the probabilities [V] may be chosen, by the definition."""
    left = probs.astype(np.float64)
    if top_k > 0:
        left = np.where(left >= np.sort(left)[::-1][min(top_k, len(left)) - 1], left, 0)
    values, counts = (each[::-1] for each in np.unique(left, return_counts=True))
    above = np.cumsum(values * counts) - values * counts  # of all that are more probable than a value
    floor = values[above < top_p * left.sum()].min(initial=1) if top_p < 1 else 0
    return (left > 0) & (left >= min(floor, left.max())) & (probs >= np.float32(min_p) * probs.max())


def assert_kept(probs: np.ndarray, given: Feeds, threshold: np.ndarray, mass: np.ndarray) -> None:
    """Allow a border one token further where a sum in float32 is within 1e-4 of top_p."""
    for row, (top_k, top_p, min_p) in enumerate(zip(*given.values(), strict=True)):
        for place, found in enumerate(probs[row] >= threshold[row][:, None]):
            low, high = (kept(probs[row, place], top_k, top_p * (1 + slack), min_p) if top_p < 1
                         else kept(probs[row, place], top_k, 1, min_p) for slack in (-1e-4, 1e-4))  # fmt: skip
            positive = found & (probs[row, place] > 0)
            assert not (low & ~positive).any(), (row, place, "too few")
            assert not (positive & ~high).any(), (row, place, "too many")
            np.testing.assert_allclose(mass[row, place], probs[row, place][found].sum(dtype=np.float64), atol=1e-4)


SIZES = (7, 64, 99, 1000, 9001, 32000)


@pytest.mark.sweep("a search over a large vocabulary in three forms", but=["-7", "-99", "-9001", "rows4-32000"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "rows",
    [
        [(0, 1.0, 0.0)] * 3,
        [(5, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.1)],
        [(1, 0.9, 0.0), (0, 1e-6, 0.0), (0, 1.0, 0.0)],
        [(-1, 0.1, 0.0), (-2, 0.5, 0.0), (50, 0.95, 0.01)],  # -1, -2: V and V + 3
        [(100, 1.0, 0.0), (2000, 0.7, 0.0), (0, 0.999, 0.0)],  # beyond the first candidates, and the second
    ],
)
def test_all_forms_of_nucleus_keep_what_they_should(size, rows):
    given = settings(*((k if k >= 0 else {-1: size, -2: size + 3}[k], p, m) for k, p, m in rows))
    probs = distributions(3, 2, size)
    eager = ops.nucleus(torch.from_numpy(probs), *map(torch.from_numpy, given.values()))
    assert_kept(probs, given, *(value.numpy() for value in eager))
    for form in FORMS:
        got = session(NUCLEUS.format(batch=3, size=size), form).run(None, {"probs": probs} | given)
        assert_kept(probs, given, *got)
        free = [not (k > 0 or p < 1 or m > 0) for k, p, m in zip(*given.values(), strict=True)]
        assert (got[0][free] == 0).all()
        assert (got[1][free] == 1).all()


@pytest.mark.parametrize("size", [7, 1000, 32000])
def test_nucleus_of_equal_probabilities(size):
    """Cut equal numbers, two levels with the higher one for a tenth, and zeros but for one."""
    probs = np.full((1, 3, size), 1 / size, np.float32)
    probs[0, 1] = np.where(np.arange(size) % 10 == 3, 9 / size, 1 / (9 * size))
    probs[0, 1] /= probs[0, 1].sum()
    probs[0, 2] = np.arange(size) == size - 1
    for given in (settings((3, 1.0, 0.0)), settings((0, 0.5, 0.0)), settings((2, 0.5, 0.0)), settings((0, 1.0, 0.5))):
        for form in FORMS:
            threshold, mass = session(NUCLEUS.format(batch=1, size=size), form).run(None, {"probs": probs} | given)
            assert_kept(probs, given, threshold, mass)


@pytest.mark.parametrize("size", [7, 1000, 32000])
def test_nucleus_that_ends_between_two_tokens(size):
    """Keep no further token where the sum is exactly top_p, as in transformers."""
    probs = np.zeros((1, 1, size), np.float32)
    probs[0, 0, [size - 1, 3, 5, 1]] = 0.5, 0.25, 0.125, 0.125
    for top_p, border, total in ((0.5, 0.25, 0.5), (0.75, 0.125, 0.75), (0.76, 0, 1.0)):
        for form in FORMS:
            feeds = {"probs": probs} | settings((0, top_p, 0.0))
            threshold, mass = session(NUCLEUS.format(batch=1, size=size), form).run(None, feeds)
            assert (border < threshold).all()
            assert (mass == total).all()


def test_the_functions_in_onnx_reference_evaluator():
    probs, given = distributions(3, 2, 50), settings((5, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.1))
    model = graph(NUCLEUS.format(batch=3, size=50))
    threshold, mass = ReferenceEvaluator(model).run(None, {"probs": probs} | given)
    assert_kept(probs, given, threshold, mass)
    uniforms = np.random.default_rng(0).random((3, 2), np.float32)
    feeds = {"weights": probs, "threshold": threshold, "uniforms": uniforms}
    (tokens,) = ReferenceEvaluator(graph(DRAW.format(batch=3, size=50))).run(None, feeds)
    np.testing.assert_array_equal(tokens, ops.draw(*map(torch.from_numpy, feeds.values())).numpy())


def assert_drawn(weights: np.ndarray, threshold: np.ndarray, uniforms: np.ndarray, tokens: np.ndarray) -> None:
    """Check each token by the definition, where sums in float32 may be off by a millionth for each thousand tokens."""
    slack = 1e-6 * max(1, weights.shape[2] / 1000)
    for place in np.ndindex(tokens.shape):
        chosen = np.where(weights[place] >= threshold[place], weights[place], 0).astype(np.float64)
        through = np.cumsum(chosen) / chosen.sum()
        token = tokens[place]
        assert chosen[token] > 0, place
        before = through[token] - chosen[token] / chosen.sum()
        assert before - slack <= uniforms[place] <= through[token] + slack, place


@pytest.mark.sweep("draws from a large vocabulary in three forms", but=["-7", "-99", "-9001", "0.01-32000"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("limit", [0.0, 0.01])
def test_all_forms_of_draw_draw_what_they_should(size, limit):
    weights = distributions(2, 5, size)
    weights[0, 0, : size // 3] = weights[0, 0, -(size // 3) :] = 0
    weights[1, 4] *= 100
    threshold = (weights.max(2) * limit).astype(np.float32)
    threshold[0, 1] = 0
    draws = session(DRAW.format(batch=2, size=size), "cpu")
    for uniforms in (
        np.zeros((2, 5), np.float32),
        np.full((2, 5), ALMOST_ONE),
        *np.random.default_rng(size).random((6, 2, 5), np.float32),
    ):
        feeds = {"weights": weights, "threshold": threshold, "uniforms": uniforms}
        eager = ops.draw(*map(torch.from_numpy, feeds.values())).numpy()
        assert_drawn(weights, threshold, uniforms, eager)
        for form in FORMS:
            assert_drawn(
                weights, threshold, uniforms, session(DRAW.format(batch=2, size=size), form).run(None, feeds)[0]
            )
        for row in range(5):  # whatever rows are beside it
            alone = {name: value[:, row : row + 1].copy() for name, value in feeds.items()}
            np.testing.assert_array_equal(draws.run(None, alone)[0][:, 0], draws.run(None, feeds)[0][:, row])


def test_draw_of_equal_weights_at_the_borders_of_blocks():
    """Weights that sum up exactly: every form gives the very token."""
    size = 16384
    weights = np.full((1, 4, size), 2.0**-14, np.float32)
    uniforms = np.array([[0, 128 / size, 127 / size, ALMOST_ONE]], np.float32)
    for form in FORMS:
        feeds = {"weights": weights, "threshold": np.zeros((1, 4), np.float32), "uniforms": uniforms}
        assert session(DRAW.format(batch=1, size=size), form).run(None, feeds)[0].tolist() == [[0, 128, 127, size - 1]]


def test_all_forms_draw_the_same_tokens():
    """Nucleus and Draw together, as a round has them: the threshold's block maxima are handed on."""
    size, random = 32000, np.random.default_rng(1)
    probs = distributions(1, 8, size)
    for limits in ((0, 1.0, 0.0), (50, 0.95, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.05), (300, 1.0, 0.0), (0, 0.9999, 0.0)):
        feeds = {"probs": probs} | settings(limits) | {"uniforms": random.random((1, 8), np.float32) * 0.99}
        found = [session(BOTH.format(size=size), form).run(None, feeds)[0] for form in FORMS]
        # A uniform within 1e-5 of a border may fall on either side of it.
        assert (found[0] == found[1]).mean() >= 7 / 8
        assert (found[1] == found[2]).mean() >= 7 / 8


def test_a_flat_distribution_is_bisected():
    probs, given = distributions(1, 2, 32000, flat=True), settings((0, 0.9, 0.0))
    threshold, mass = session(NUCLEUS.format(batch=1, size=32000), "cpu").run(None, {"probs": probs} | given)
    assert ((probs >= threshold[..., None]).sum(2) > 20000).all()
    assert_kept(probs, given, threshold, mass)


@pytest.mark.sweep("an engine for each size", but=["99-", "50257-"])
@pytest.mark.parametrize(("size", "capability"), [(99, "8.6"), (32000, "8.9"), (151936, "12.0"), (50257, "8.9")])
def test_tensorrt_takes_both(size, capability, tmp_path: Path):
    model = ir.from_proto(graph(BOTH.format(size=size)))
    static_cache.lower(model)
    assert {node.op_type for node in ir.traversal.RecursiveGraphIterator(model.graph)}.isdisjoint({"If", "NonZero"})
    ir.save(model, tmp_path / "verify.onnx")
    one = (1,)
    rows = (1, "logit_rows")
    kinds = {"probs": (1, "logit_rows", size), "top_k": one, "top_p": one, "min_p": one, "uniforms": rows}
    inputs = [Tensor(n, "int64" if n == "top_k" else "float32", shape, n, "io") for n, shape in kinds.items()]
    outputs = [Tensor("tokens", "int64", rows, "tokens", "io"), Tensor("mass", "float32", rows, "mass", "io")]
    contract = Graph("verify", tuple(inputs), tuple(outputs))
    plan = make_settings(
        contract, backend="tensorrt_rtx", compute_capability=capability, precision={"target": "float32"}, tokens=4,
        catch_up=2, prefill_chunk=16, max_length=64,
    )  # fmt: skip
    report = process.build(
        tmp_path / "verify.onnx", contract, plan, tmp_path / "engine", Limits(seconds=120, memory=8e9)
    )
    assert report["bytes"] > 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [37, 9000])
@pytest.mark.parametrize("is_wide", [False, True], ids=["one", "all"])
def test_what_is_not_allowed_is_hidden(form, size, is_wide):
    """Mask tokens before the best one is searched; one number stands for all where no slot is constrained."""
    random = np.random.default_rng(size)
    logits = random.standard_normal((2, 3, size), np.float32)
    allowed = random.random((2, 3, size if is_wide else 1)) < 0.5
    allowed[..., 0], allowed[1, 2] = True, False  # one row allows nothing
    text = ALLOW.format(batch=2, size=size)
    possible, best = session(text, form).run(None, {"logits": logits, "allowed": allowed})
    expected = np.where(allowed, logits, np.float32(ops.HIDDEN))
    assert np.array_equal(possible, expected)
    assert np.array_equal(best, expected.argmax(-1))
    eager = ops.allow(torch.tensor(logits), torch.tensor(allowed))
    assert np.array_equal(eager.numpy(), expected)


def test_the_passes_behind_still_find_what_they_look_for():
    fired = cpu.lower(ir.from_proto(graph(ALLOW.format(batch=1, size=9000))))
    assert fired["allow_where"] == fired["argmax_blocks"] == 1


def test_tensorrt_is_told_of_both_widths(tmp_path: Path):
    """Give every Where the whole vocabulary: over the axis itself it would be compiled for one width."""
    size, rows = 9000, (1, "logit_rows")
    model = ir.from_proto(graph(ALLOW.format(batch=1, size=size)))
    assert static_cache.lower(model)["allow_expanded"] == 1
    (where,) = (node for node in model.graph if node.op_type == "Where")
    assert where.inputs[0].producer().op_type == "Expand"
    ir.save(model, tmp_path / "verify.onnx")
    logits, allowed = Tensor("logits", "float32", (*rows, size), "logits", "io"), (*rows, "allowed")
    inputs = (logits, Tensor("allowed", "bool", allowed, "allowed", "io"))
    outputs = (replace(logits, name="possible"), Tensor("best", "int64", rows, "best", "io"))
    contract = Graph("verify", inputs, outputs)
    plan = make_settings(
        replace(contract, outputs=(*outputs, logits)), backend="tensorrt_rtx", compute_capability="8.9",
        precision={"target": "float32"}, tokens=4, catch_up=2, prefill_chunk=16, max_length=64,
    )  # fmt: skip
    assert plan.profile["allowed"] == ((1, 1, 1), (1, 5, 1), (1, 16, size))
    report = process.build(tmp_path / "verify.onnx", contract, plan, tmp_path / "engine", Limits(120, 8e9))
    assert report["parsed_layers"]["SELECT"] == 1
