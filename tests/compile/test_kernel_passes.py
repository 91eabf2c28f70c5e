"""The passes that put kernels in, on small graphs: with the library and without it they give what the graph gave."""

import numpy as np
import pytest

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes.attend_kernel import attend_kernel
from speccompile.compiler.lower.passes.commit_scatter import commit_scatter
from speccompile.compiler.lower.passes.fuse_head_split import fuse_head_split
from speccompile.compiler.lower.passes.fuse_rotary_tables import fuse_rotary_tables
from speccompile.compiler.lower.passes.gate_kernels import gate_kernels
from tests.compile.test_passes import apply, check, graph, normal, run, unchanged

ATTEND = """(float[{batch}, 4, T, 8] query, float[{batch}, 2, T, 8] rows, float[{batch}, 2, 20, 8] cache,
    int64[{batch}] length, int64[{batch}, T] positions, float[{batch}, 1, T, T] bias)
    => (float[{batch}, {result}] context, float[{batch}, 2, 20, 8] updated) {{
    raw = speccompile.Attend<scale = 0.3, softcap = {softcap}, window = {window}, ring = 0>(
        query, rows, rows, cache, cache, length, positions, bias)
    {turned}
    updated = speccompile.Commit<axis = 2, mode = "linear">(cache, rows, length) }}"""
AS_IT_IS = {"result": "4, T, 8", "turned": "context = Identity(raw)"}
TURNED = {
    "result": "T, 32",
    "turned": """by_token = Transpose<perm = [0, 2, 1, 3]>(raw)
    flat = Constant<value_ints = [0, 0, 32]>()  context = Reshape(by_token, flat)""",
}


def attend_feeds(batch: int, window: int) -> dict[str, np.ndarray]:
    length, places = np.array([7, 3][:batch]), np.arange(5)
    visible = (places <= places[:, None]) & ((places[:, None] - places < window) | (window == 0))
    return {
        "query": normal(batch, 4, 5, 8),
        "rows": normal(batch, 2, 5, 8),
        "cache": normal(batch, 2, 20, 8),
        "length": length,
        "positions": length[:, None] + places,
        "bias": np.broadcast_to(np.where(visible, 0, -1e30), (batch, 1, 5, 5)).astype(np.float32),
    }


@pytest.mark.parametrize("turned", [AS_IT_IS, TURNED])
@pytest.mark.parametrize(("batch", "window", "softcap"), [(1, 0, 0.0), (1, 4, 0.0), (2, 0, 5.0), (2, 3, 0.0)])
def test_attend_reads_the_cache_in_place(batch, window, softcap, turned):
    before = graph(ATTEND.format(batch=batch, window=window, softcap=softcap, **turned))
    fired, after, ops = apply(attend_kernel, commit_scatter, before=before)
    moved = {"Identity": 1, "Transpose": 2, "Reshape": 2} if turned is AS_IT_IS else {"Transpose": 1, "Reshape": 1}
    assert (fired, ops) == (1, {"Attend": 1, "TensorScatter": 1} | moved)
    feeds = attend_feeds(batch, window)
    for got, expected in zip(run(after, feeds), run(before, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


PROJECTIONS = {"q": (0, 4, 8), "k": (32, 2, 8), "v": (48, 2, 6)}
"""Name -> where its columns begin in a projection of 60, its heads and their width."""


HEADS = """(float[2, T, 60] x, float[2, T, {half}] cos, float[2, T, {half}] sin, float[8] q_norm, float[8] k_norm,
    float[2, 2, 20, 8] keys, float[2, 2, 20, 6] values, int64[2] length, int64[2, T] positions, float[2, 1, T, T] bias)
    => (float[2, T, 24] y, float[2, 2, T, 8] k, float[2, 2, T, 6] v) {{
    {projections}
    context = speccompile.Attend<scale = 0.3, softcap = 0.0, window = 0, ring = 0>(
        q, k, v, keys, values, length, positions, bias)
    by_token = Transpose<perm = [0, 2, 1, 3]>(context)
    flat = Constant<value_ints = [0, 0, 24]>()  y = Reshape(by_token, flat) }}"""


def heads_text(*, half: int = 4, attributes: str = "", norm: str = "", rotary: bool = True) -> str:
    lines = ["last = Constant<value_ints = [-1]>()"]
    for name, (start, heads, width) in PROJECTIONS.items():
        value = f"{name}_heads"
        turned = "Transpose<perm = [0, 2, 1, 3]>({})"
        normal_ = f"RMSNormalization<axis = -1, epsilon = 1e-5>({{}}, {name}_norm)"
        steps = [turned]
        if norm and name != "v":
            steps = [normal_, turned] if norm == "before" else [turned, normal_]
        if rotary and name != "v":
            steps.append(f"RotaryEmbedding{attributes}({{}}, cos, sin)")
        lines.append(f"""{name}_start = Constant<value_ints = [{start}]>()
            {name}_end = Constant<value_ints = [{start + heads * width}]>()
            {name}_cut = Slice(x, {name}_start, {name}_end, last)
            {name}_shape = Constant<value_ints = [2, -1, {heads}, {width}]>()
            {value} = Reshape({name}_cut, {name}_shape)""")
        for number, step in enumerate(steps, 1):
            result = name if number == len(steps) else f"{name}_{number}"
            lines.append(f"{result} = {step.format(value)}")
            value = result
    return HEADS.format(half=half, projections="\n".join(lines))


def heads_feeds(half: int = 4) -> dict[str, np.ndarray]:
    angles = normal(2, 5, half)
    rest = attend_feeds(2, 0)
    return {
        "x": normal(2, 5, 60), "cos": np.cos(angles), "sin": np.sin(angles), "q_norm": normal(8),
        "k_norm": normal(8)[::-1].copy(), "keys": normal(2, 2, 20, 8), "values": normal(2, 2, 20, 6),
        "length": rest["length"], "positions": rest["positions"], "bias": rest["bias"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "operator", "half"),
    [
        ({}, "RotaryHeads", 4),
        ({"attributes": "<interleaved = 1>"}, "RotaryHeads", 4),
        ({"attributes": "<rotary_embedding_dim = 4>"}, "RotaryHeads", 2),
        ({"norm": "before"}, "NormRotaryHeads", 4),
        ({"norm": "behind"}, "NormRotaryHeads", 4),
        ({"rotary": False}, "SplitHeads", 4),
    ],
)
def test_heads_are_made_in_one_node(form, operator, half):
    before = graph(heads_text(half=half, **form))
    fired, after, ops = apply(attend_kernel, fuse_head_split, before=before)
    assert (fired, ops) == (1, {operator: 1, "Attend": 1})
    feeds = heads_feeds(half)
    for got, expected in zip(run(after, feeds), run(before, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_heads_that_are_normalized_and_not_turned_stay():
    text = heads_text(rotary=False, norm="before")
    assert apply(attend_kernel, fuse_head_split, before=graph(text))[0] == 0


GATE = """(float[1, T, 20] x, float[1, T, 6] other) => (float[1, T, 6] y) {{
    last = Constant<value_ints = [-1]>()  a = Constant<value_ints = [2]>()  b = Constant<value_ints = [8]>()
    c = Constant<value_ints = [11]>()  d = Constant<value_ints = [17]>()
    gate = Slice(x, a, b, last)  up = Slice(x, c, d, last)
    {body} }}"""
SILU = "open = Sigmoid(gate)  swish = Mul(gate, open)"


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        (f"{SILU}  y = Mul(swish, up)", {"GatedSilu": 1}),
        (f"{SILU}  y = Mul(up, swish)", {"GatedSilu": 1}),
        (f"{SILU}  y = Mul(swish, other)", {"GatedSilu": 1}),
        ('bent = Gelu<approximate = "tanh">(gate)  y = Mul(bent, up)', {"GatedGelu": 1}),
    ],
)
def test_gates_are_one_node(body, ops):
    feeds = {"x": 3 * normal(1, 4, 20), "other": normal(1, 4, 6)}
    check(gate_kernels, text=GATE.format(body=body), feeds=feeds, ops=ops)


@pytest.mark.parametrize(
    "body",
    [
        "bent = Gelu(gate)  y = Mul(bent, up)",
        "open = Sigmoid(up)  swish = Mul(gate, open)  y = Mul(swish, up)",
        "one = Constant<value_float = 2.0>()  open = Sigmoid(gate)  swish = Mul(gate, open)  y = Mul(swish, one)",
    ],
)
def test_other_products_stay(body):
    unchanged(gate_kernels, text=GATE.format(body=body))


TABLES = """(int64[2, T] positions, float[4] frequencies) => (float[2, T, 4] c, float[2, T, 4] s) {{
    last = Constant<value_ints = [-1]>()  spread = Unsqueeze(positions, last)  floats = Cast<to = 1>(spread)
    angles = Mul(floats, frequencies)  cosine = Cos(angles)  sine = Sin(angles)
    {scaled} }}"""


@pytest.mark.parametrize(
    "scaled",
    [
        "c = Mul(cosine, two)  s = Mul(sine, two)  two = Constant<value_float = 2.0>()",
        "c = Relu(cosine)  s = Relu(sine)",
    ],
)
def test_cosines_and_sines_are_one_node(scaled):
    text = TABLES.format(scaled=scaled)
    if "two" in scaled:
        text = text.replace("last = ", "two = Constant<value_float = 2.0>()  last = ").replace(
            "  two = Constant<value_float = 2.0>() }", " }"
        )
    feeds = {"positions": np.array([[0, 1, 5, 4000], [70, 2, 1, 131071]]), "frequencies": np.abs(normal(4))}
    ops = {"RotaryTables": 1} | ({} if "two" in scaled else {"Relu": 2})
    check(fuse_rotary_tables, text=text, feeds=feeds, ops=ops)


def test_the_domain_of_the_neutral_ops_is_known():
    """`graph` gives small graphs the bodies of the neutral ops, which `run` needs before anything is lowered."""
    assert {function.domain for function in graph(heads_text()).functions} == {neutral.DOMAIN}
