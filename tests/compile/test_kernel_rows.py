"""Normalizations, gates and heads on every path and with one thread and two: bit for bit what their order says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compile import kernel_reference as reference
from tests.compile.kernel_cases import drawn, graph, quick, values
from tests.compile.kernel_reference import Array, Floats
from tests.compile.kernel_runs import KernelRuns, needs_library, same_bits

pytestmark = needs_library

EPSILON = 1e-5
SHAPES = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 64), st.integers(1, 50)),
    st.tuples(st.just(1), st.integers(30, 64), st.integers(600, 650)),  # threads share the rows
)


def agree(found: list[Array], *expected: Floats) -> None:
    for one, other in zip(found, expected, strict=True):
        same_bits(one, other, "the kernels and the reference")


@pytest.mark.parametrize("op", ["RmsNorm", "SkipRmsNorm", "LayerNorm"])
@drawn(20, 80)
def test_normalizations(op, data):
    shape = data.draw(SHAPES)
    feeds = {"x": values(data.draw, *shape)}
    if op == "SkipRmsNorm":
        feeds["residual"] = values(data.draw, *shape)
    constants = {"weight": values(data.draw, shape[-1])}
    if op == "LayerNorm":
        constants["bias"] = values(data.draw, shape[-1])
    outputs = 2 if op == "SkipRmsNorm" else 1
    found = KernelRuns(graph(op, dict.fromkeys(feeds) | constants, outputs, epsilon=EPSILON)).run(feeds)
    with np.errstate(all="ignore"):
        x = feeds["x"] + feeds["residual"] if op == "SkipRmsNorm" else feeds["x"]
    y = reference.normalized(x, constants["weight"], constants.get("bias"), EPSILON, subtracts_mean=op == "LayerNorm")
    agree(found, *([y, x] if op == "SkipRmsNorm" else [y]))


@pytest.mark.parametrize(("op", "activation"), [("GatedSilu", reference.silu), ("GatedGelu", reference.gelu_tanh)])
@drawn(20, 80)
def test_gates(op, activation, data):
    batch, tokens, width = data.draw(SHAPES)
    offsets = [data.draw(st.integers(0, 20)) for _ in range(2)]
    gate, up = (values(data.draw, batch, tokens, offset + width + data.draw(st.integers(0, 5))) for offset in offsets)
    attributes = {"width": width, "gate_offset": offsets[0], "up_offset": offsets[1]}
    found = KernelRuns(graph(op, {"gate": None, "up": None}, **attributes)).run({"gate": gate, "up": up})
    with np.errstate(all="ignore"):
        y = activation(gate[..., offsets[0] :][..., :width]) * up[..., offsets[1] :][..., :width]
    agree(found, y)


@pytest.mark.parametrize("op", ["SplitHeads", "RotaryHeads", "NormRotaryHeads"])
@drawn(25, 100)
def test_heads(op, data):
    draw = data.draw
    batch, tokens = draw(st.integers(1, 2)), draw(st.integers(1, 64))
    groups, shared = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    width, value_width = draw(st.integers(2, 40)), draw(st.integers(1, 20))
    half = draw(st.integers(1, width // 2))
    widths = {"query": groups * shared * width, "key": groups * width, "value": groups * value_width}
    offsets = {name: draw(st.integers(0, 7)) for name in widths}
    feeds = {name: values(draw, batch, tokens, offsets[name] + each + 2) for name, each in widths.items()}
    places = {f"{name}_offset": offset for name, offset in offsets.items()}
    places |= {"heads": groups * shared, "groups": groups, "key_width": width, "value_width": value_width}
    constants, interleaved = {}, draw(st.booleans())
    if op != "SplitHeads":
        feeds |= {name: values(draw, batch, tokens, half) for name in ("cosines", "sines")}
        places |= {"turned": 2 * half, "interleaved": int(interleaved)}
    if op == "NormRotaryHeads":
        constants = {name: values(draw, width) for name in ("query_weight", "key_weight")}
        places["epsilon"] = EPSILON
    found = KernelRuns(graph(op, dict.fromkeys(feeds) | constants, 3, **places)).run(feeds)

    def heads(name: str, each: int) -> Floats:
        cut = feeds[name][..., offsets[name] :][..., : widths[name]].reshape(batch, tokens, -1, each)
        if f"{name}_weight" in constants:
            cut = reference.normalized(cut, constants[f"{name}_weight"], None, EPSILON, subtracts_mean=False)
        if "cosines" in feeds and name != "value":
            cut = reference.turned(cut, feeds["cosines"], feeds["sines"], interleaved=interleaved)
        return cut

    queries = heads("query", width).reshape(batch, tokens, -1)
    agree(found, queries, heads("key", width).transpose(0, 2, 1, 3), heads("value", value_width).transpose(0, 2, 1, 3))


@quick(40)
@given(st.data())
def test_tables_of_angles(data):
    """Compare with float64 within a unit in the last place, times the scale; no number is beyond 2^20 quarter turns."""
    last = data.draw(st.sampled_from([100, 131072, 1 << 40]))
    positions = np.array([data.draw(st.lists(st.integers(0, last), min_size=1, max_size=64))])
    frequencies = np.abs(values(data.draw, data.draw(st.integers(1, 40)), kinds=("any", "extremes")))
    model = graph(
        "RotaryTables", {"positions": None, "frequencies": frequencies}, 2, feeds={"positions": np.int64}, scale=0.5
    )
    found = KernelRuns(model).run({"positions": positions})
    with np.errstate(all="ignore"):
        angles = positions[..., None].astype(np.float32) * frequencies
        known = angles < 1647099
        for got, function in zip(found, (np.cos, np.sin), strict=True):
            expected = function(np.where(known, angles, 0).astype(np.float64)).astype(np.float32) * np.float32(0.5)
            np.testing.assert_array_equal(np.isnan(got), ~known)
            np.testing.assert_array_max_ulp(got[known], expected[known], 1)
