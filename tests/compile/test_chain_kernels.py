"""Chains of kernels: which nodes they take, and that the graph gives the same bits with the library, and nearly them
without it."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.native import CHAIN, DOMAIN
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.lower.passes.chain_kernels import chain_kernels
from tests.compile.kernel_runs import KernelRuns, needs_library, run_bodies, same_bits

HEADER = f'<ir_version: 10, opset_import: ["" : {neutral.OPSET}, "{DOMAIN}" : 1]>'
PLACES = "heads = 2, groups = 1, key_width = 4, value_width = 4, query_offset = 0, key_offset = 8, value_offset = 12"
LAYER = f"""
    n{{i}}, s{{i}} = {DOMAIN}.SkipRmsNorm<epsilon = 1e-5>({{x}}, {{r}}, norm)
    p{{i}} = {DOMAIN}.LinearFloat32<columns = 16, depth = 8>(n{{i}}, up, bias)
    q{{i}}, k{{i}}, v{{i}} = {DOMAIN}.SplitHeads<{PLACES}>(p{{i}}, p{{i}}, p{{i}})
    {{between}}
    c{{i}} = {DOMAIN}.Attend<scale = 0.5, softcap = 0.0, window = 0, ring = 0>(
        q{{i}}, {{keys}}, {{values}}, cache, cache, length, positions, seen)
    o{{i}} = {DOMAIN}.LinearFloat32<columns = 8, depth = 8>(c{{i}}, out, bias)"""
WEIGHTS = {"norm": (8,), "up": (1, 8, 16), "out": (1, 8, 16)}
INPUTS = """float[2, 3, 8] x, float[2, 3, 8] r, float[2, 1, 5, 4] cache, int64[2] length, int64[2, 3] positions,
    float[2, 1, 3, {rows}] seen"""


def graph(
    layers: int, *, between: str = "", keys: str = "k", values: str = "v", results: str = "", rows: int = 3
) -> onnx.ModelProto:
    """Return decoder layers one behind the other. between: statements before each attention, which reads `keys` and
    `values` of so many rows."""
    body, x, r = "", "x", "r"
    for i in range(layers):
        joined = {"keys": f"{keys}{i}", "values": f"{values}{i}", "between": between.format(i=i)}
        body += LAYER.format(i=i, x=x, r=r, **joined)
        x, r = f"o{i}", f"s{i}"
    outputs = f"float[2, 3, 8] {x}, float[2, 1, 3, 4] k0{results}"
    known = ", ".join(f"float[2, 1, 6, 4] {name}{i}" for i in range(layers) for name in "jw")
    model = onnx.parser.parse_model(
        f"{HEADER} graph ({INPUTS.format(rows=rows)}) => ({outputs}) <{known if rows == 6 else ''}> {{ {body} }}"
    )
    random = np.random.default_rng(0)
    floats = {name: random.standard_normal(shape, np.float32) for name, shape in WEIGHTS.items()}
    floats["bias"] = np.zeros(1, np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in floats.items())
    return model


def feeds(rows: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    length = np.array([4, 2])
    return {
        "x": random.standard_normal((2, 3, 8), np.float32),
        "r": random.standard_normal((2, 3, 8), np.float32),
        "cache": random.standard_normal((2, 1, 5, 4), np.float32),
        "length": length,
        "positions": length[:, None] + np.arange(3),
        "seen": np.zeros((2, 1, 3, rows), np.float32),
    }


def chained(before: onnx.ModelProto) -> tuple[int, onnx.ModelProto]:
    model = ir.from_proto(before)
    fired = chain_kernels(model)
    add_functions(model)
    after = ir.to_proto(model)
    onnx.checker.check_model(after)
    return fired, after


JOINED = {"between": "j{i} = Identity(k{i})", "keys": "j"}
"""A node between the heads and the attention that is no kernel, as where rows of earlier passes are joined."""

EARLIER = {"between": "j{i} = Concat<axis = 2>(k{i}, k0)  w{i} = Concat<axis = 2>(v{i}, v0)", "rows": 6,
           "keys": "j", "values": "w"}  # fmt: skip
"""Rows of an earlier pass behind a pass's own."""


@pytest.mark.parametrize(
    ("before", "ops"),
    [
        (graph(1), [CHAIN]),
        (graph(3), [CHAIN] * 3),
        (graph(2, **JOINED), [CHAIN, "Identity", CHAIN, "Identity", CHAIN]),
        (graph(2, **EARLIER), [CHAIN] * 2),
        (graph(2, results=", float[2, 3, 8] s0, float[2, 3, 8] n1"), [CHAIN] * 2),
    ],
    ids=["one layer", "a node a layer", "something between", "joined rows", "inner results"],
)
@needs_library
def test_bits_are_those_of_single_nodes(before, ops):
    fired, after = chained(before)
    assert [node.op_type for node in after.graph.node] == ops
    assert fired == ops.count(CHAIN)
    given = feeds(before.graph.input[-1].type.tensor_type.shape.dim[3].dim_value)
    for one, other in zip(KernelRuns(before).run(given), KernelRuns(after).run(given), strict=True):
        same_bits(one, other, "nodes and chains")
    for one, other in zip(run_bodies(before, given), run_bodies(after, given), strict=True):
        same_bits(one, other, "functions of nodes and of chains")


def test_equal_layers_share_a_function():
    """Begin the first chain with a norm, those behind it with an attention; the last two lead to fewer heads."""
    _, after = chained(graph(5))
    overloads = [node.overload for node in after.graph.node]
    assert len(set(overloads)) == 4
    assert overloads[1] == overloads[2]
    assert sorted(each.overload for each in after.functions if each.name == CHAIN) == sorted(set(overloads))


def test_a_kernel_alone_stays():
    model = onnx.parser.parse_model(
        f"{HEADER} graph (float[2, 8] x, float[8] w) => (float[2, 8] y) {{"
        f" n = {DOMAIN}.RmsNorm<epsilon = 1e-5>(x, w)  m = Relu(n)  y = {DOMAIN}.RmsNorm<epsilon = 1e-5>(m, w) }}"
    )
    fired, after = chained(model)
    assert (fired, [node.op_type for node in after.graph.node]) == (0, ["RmsNorm", "Relu", "RmsNorm"])
