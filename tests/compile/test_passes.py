"""Each pass on a small graph: how often it fires, and that the graph gives what it gave."""

import math
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from speccompile import native
from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.lower.passes.argmax_blocks import argmax_blocks
from speccompile.compiler.lower.passes.cast_like import cast_like
from speccompile.compiler.lower.passes.commit_persistent import commit_persistent
from speccompile.compiler.lower.passes.convolve_slices import convolve_slices
from speccompile.compiler.lower.passes.fold_constants import fold_constants
from speccompile.compiler.lower.passes.gather_rows import gather_rows
from speccompile.compiler.lower.passes.merge_reshapes import merge_reshapes
from speccompile.compiler.lower.passes.name_branches import name_branches
from speccompile.compiler.lower.passes.partial_rotary_embedding import partial_rotary_embedding
from speccompile.compiler.lower.passes.remove_noop_slices import remove_noop_slices
from speccompile.compiler.lower.passes.rotary_embedding import rotary_embedding
from speccompile.compiler.lower.passes.skip_unused_argmax import skip_unused_argmax
from speccompile.compiler.lower.passes.topk_blocks import topk_blocks
from speccompile.compiler.lower.passes.transposed_weights import transposed_weights
from tests.compile.kernel_runs import KernelRuns, run_bodies

Feeds = dict[str, np.ndarray]
HEADER = f'<ir_version: 10, opset_import: ["" : {neutral.OPSET}, "{neutral.DOMAIN}" : 1]>'


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape, np.float32)


def graph(text: str) -> onnx.ModelProto:
    """Return a model from onnx's text form, `(inputs) => (outputs) { nodes }`, with the shapes that a trace would
    know."""
    model = onnx.parser.parse_model(f"{HEADER} graph {text}")
    model.functions.extend(neutral.functions())
    return onnx.shape_inference.infer_shapes(model)


def run(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    return run_bodies(model, feeds)


def apply(*passes: Callable[[ir.Model], int], before: onnx.ModelProto) -> tuple[int, onnx.ModelProto, dict[str, int]]:
    """Return how often the last pass fired, the graph behind it without unused nodes, and its ops, counted."""
    model = ir.from_proto(before)
    fired = [each(model) for each in passes][-1]
    ir.passes.common.RemoveUnusedNodesPass()(model)
    ir.passes.common.TopologicalSortPass()(model)
    add_functions(model)
    ops = [node.op_type for node in model.graph if node.op_type != "Constant"]
    return fired, ir.to_proto(model), {op: ops.count(op) for op in ops}


def check(*passes: Callable[[ir.Model], int], text: str, feeds: Feeds, ops: dict[str, int], fired: int = 1) -> None:
    """Check that the passes turn the graph into these ops, and onnxruntime then gives what onnx's reference gave
    before, with the kernels of the library and without them."""
    before = graph(text)
    count, after, found = apply(*passes, before=before)
    assert (count, found) == (fired, ops)
    onnx.checker.check_model(after)
    expected = ReferenceEvaluator(before).run(None, feeds)
    calls_kernels = any(node.domain == native.DOMAIN for node in after.graph.node)
    found = [run(after, feeds), *([KernelRuns(after).run(feeds)] if calls_kernels and native.library() else [])]
    for each in found:
        for got, wanted in zip(each, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def unchanged(*passes: Callable[[ir.Model], int], text: str) -> None:
    assert apply(*passes, before=graph(text))[0] == 0


HALVES = """first = Slice(r, zero, middle, last, one)  second = Slice(r, middle, far, last, one)
    minus = Neg(second)  turned = Concat<axis = -1>(minus, first)"""
PAIRS = """first = Slice(r, zero, far, last, two)  second = Slice(r, one, far, last, two)
    minus = Neg(second)  a = Unsqueeze(minus, behind)  b = Unsqueeze(first, behind)
    pairs = Concat<axis = -1>(a, b)  turned = Reshape(pairs, flat)"""
COPIED = "angles = Concat<axis = -1>(half, half)"
SPREAD = """wide = Unsqueeze(half, last)  spread = Expand(wide, times)  angles = Reshape(spread, row)"""
ROTARY = """(float[2, 3, T, 8] x, float[2, T, 2] half) => (float[2, 3, T, {width}] y)
<int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] last = {{3}}, int64[1] middle = {{2}},
 int64[1] four = {{4}}, int64[1] far = {{9223372036854775807}}, int64[1] behind = {{-1}},
 int64[4] flat = {{0, 0, -1, 4}}, int64[4] times = {{1, 1, 1, 2}}, int64[3] row = {{2, -1, 4}}> {{
    factor = Constant<value_float = 1.5>()
    r = Slice(x, zero, four, last, one)
    {angles}
    cos = Cos(angles)  cosine = Mul(cos, factor)  cos4 = Unsqueeze(cosine, one)
    sin = Sin(angles)  sine = Mul(sin, factor)  sin4 = Unsqueeze(sine, one)
    {turn}
    straight = Mul(r, cos4)  across = Mul(turned, sin4)
    {rest} }}"""
ALONE = {"rest": "y = Add(straight, across)", "width": "4"}
BESIDE = {"rest": "z = Add(across, straight)  rest = Slice(x, four, far, last, one)  y = Concat<axis = -1>(z, rest)",
          "width": "8"}  # fmt: skip
ROTARY_FEEDS = {"x": normal(2, 3, 5, 8), "half": normal(2, 5, 2) * 3}
TABLES = {"Cos": 1, "Sin": 1, "Mul": 2}


@pytest.mark.parametrize("form", [{"angles": COPIED, "turn": HALVES}, {"angles": SPREAD, "turn": PAIRS}])
def test_rotary_embedding(form):
    ops = {"Slice": 1, "RotaryEmbedding": 1, **TABLES}
    check(rotary_embedding, text=ROTARY.format(**form, **ALONE), feeds=ROTARY_FEEDS, ops=ops)


@pytest.mark.parametrize("form", [{"angles": COPIED, "turn": HALVES}, {"angles": SPREAD, "turn": PAIRS}])
def test_partial_rotary_embedding(form):
    ops = {"RotaryEmbedding": 1, **TABLES}
    passes = rotary_embedding, partial_rotary_embedding
    check(*passes, text=ROTARY.format(**form, **BESIDE), feeds=ROTARY_FEEDS, ops=ops)


@pytest.mark.parametrize(
    "form",
    [
        {"angles": COPIED, "turn": PAIRS},
        {"angles": SPREAD, "turn": HALVES},
        {"angles": "other = Neg(half)  angles = Concat<axis = -1>(half, other)", "turn": HALVES},
        {"angles": SPREAD.replace("(half, last)", "(half, two)").replace("times)", "times2)")
         + " times2 = Constant<value_ints = [1, 1, 2, 1]>()", "turn": PAIRS},
        {"angles": COPIED, "turn": HALVES.replace("(r, zero, middle", "(r, one, middle")},
        {"angles": COPIED, "turn": HALVES.replace("(minus, first)", "(first, minus)")},
    ],
)  # fmt: skip
def test_what_turns_otherwise_stays(form):
    unchanged(rotary_embedding, text=ROTARY.format(**form, **ALONE))


@pytest.mark.parametrize(("rows", "angles", "count"), [("3, T", "1, T", 1), ("T, 3", "T, 1", 0)])
def test_heads_behind_the_tokens_stay(rows, angles, count):
    text = ROTARY.format(angles=COPIED, turn=HALVES, **ALONE).replace("(r, cos4)", "(r, cosine)")
    text = text.replace("(turned, sin4)", "(turned, sine)").replace("[2, T, 2] half", f"[2, {angles}, 2] half")
    assert apply(rotary_embedding, before=graph(text.replace("[2, 3, T,", f"[2, {rows},")))[0] == count


def test_a_partial_rotary_embedding_that_leaves_columns_out_stays():
    form = {"angles": COPIED, "turn": HALVES, "width": "7"}
    rest = BESIDE["rest"].replace("Slice(x, four", "Slice(x, five") + " five = Constant<value_ints = [5]>()"
    unchanged(rotary_embedding, partial_rotary_embedding, text=ROTARY.format(**form, rest=rest))


def test_fold_constants():
    text = """(float[T, 4] x) => (float[S, 4] y) <float[4] w = {1.0, 2.0, 3.0, 4.0}> {
        start = Constant<value_float = 1.0>()  whole = Cast<to = 7>(start)  row = Constant<value_ints = [-1]>()
        starts = Reshape(whole, row)  ends = Constant<value_ints = [3]>()  axes = Constant<value_ints = [0]>()
        part = Slice(x, starts, ends, axes)  more = Add(w, w)  y = Mul(part, more) }"""
    check(fold_constants, text=text, feeds={"x": normal(5, 4)}, ops={"Slice": 1, "Add": 1, "Mul": 1}, fired=4)


def test_merge_reshapes():
    text = """(float[1, 1, 24] x) => (float[1, 2, 2, 6] y)
        <int64[4] heads = {1, 1, 4, 6}, int64[4] groups = {1, 2, -1, 6}> {
        rows = Reshape(x, heads)  turned = Transpose<perm = [0, 2, 1, 3]>(rows)  y = Reshape(turned, groups) }"""
    check(merge_reshapes, text=text, feeds={"x": normal(1, 1, 24)}, ops={"Reshape": 1}, fired=3)


@pytest.mark.parametrize("batch_and_tokens", ["1, T", "2, 3"])
def test_a_transpose_that_moves_something_stays(batch_and_tokens):
    text = f"""(float[{batch_and_tokens}, 4, 6] x) => (float[B, 4, N, 6] y) {{
        y = Transpose<perm = [0, 2, 1, 3]>(x) }}"""
    unchanged(merge_reshapes, text=text)


def test_a_reshape_that_copies_a_size_of_what_came_before_stays():
    text = """(float[4, 6] x) => (float[2, 12] y) <int64[3] first = {2, 2, 6}, int64[2] then = {0, -1}> {
        z = Reshape(x, first)  y = Reshape(z, then) }"""
    unchanged(merge_reshapes, text=text)


def ties(rows: int, size: int) -> np.ndarray:
    """Return [2, rows, size] with ties: in one block, in several, at the borders of blocks, and all equal."""
    x = np.random.default_rng(0).integers(-3, 3, (2, rows, size)).astype(np.float32)
    x[0, 0] = 7
    x[0, 1, [size - 1, 128, 127]] = 9
    x[0, 2, [4000, 3999]] = 9
    x[0, 3] = -np.inf
    return x


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("size", [8192, 8209])
def test_argmax_blocks(keepdims, size):
    text = f"""(float[2, T, {size}] x) => (int64[2, T, N] y) {{ y = ArgMax<axis = -1, keepdims = {keepdims}>(x) }}"""
    ops = {"Reshape": 1, "ReduceMax": 1, "ArgMax": 2, "GatherND": 1, "Mul": 1, "Add": 1}
    ops |= {"Pad": 1} if size == 8209 else {}  # a prime
    text = text if keepdims else text.replace("T, N] y", "T] y")
    check(argmax_blocks, text=text, feeds={"x": ties(6, size)}, ops=ops if keepdims else ops | {"Squeeze": 1})


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ("2, 4096", "axis = -1"),  # short
        ("8192, 8192", "axis = 0"),
        ("2, 8192", "axis = -1, select_last_index = 1"),
    ],
)
def test_an_argmax_of_another_kind_stays(shape, attributes):
    unchanged(argmax_blocks, text=f"(float[{shape}] x) => (int64[N, M] y) {{ y = ArgMax<{attributes}>(x) }}")


TOPK = """(float[2, T, {size}] x) => (float[2, T, {k}] y, int64[2, T, {k}] i) <int64[1] k = {{{k}}}> {{
    y, i = TopK<axis = {axis}, largest = {largest}>(x, k) }}"""


@pytest.mark.parametrize(("size", "k"), [(8192, 1), (8192, 8), (8209, 8), (32000, 64)])
def test_topk_blocks(size, k):
    """Return the first of equal numbers, as ONNX says."""
    ops = {"Reshape": 2, "ReduceMax": 1, "TopK": 3, "Unsqueeze": 1, "GatherND": 1, "GatherElements": 1}
    ops |= {"Div": 1, "Mod": 1, "Mul": 1, "Add": 1} | ({"Pad": 1} if size == 8209 else {})
    text = TOPK.format(size=size, k=k, axis=-1, largest=1)
    check(topk_blocks, text=text, feeds={"x": ties(6, size)}, ops=ops)


@pytest.mark.parametrize(
    "change", [{"size": 4096}, {"size": 16000, "k": 64}, {"k": 65, "size": 32000}, {"axis": 1}, {"largest": 0}]
)
def test_a_topk_of_another_kind_stays(change):
    unchanged(topk_blocks, text=TOPK.format(**({"size": 8192, "k": 8, "axis": -1, "largest": 1} | change)))


@pytest.mark.parametrize("unwanted", [[True, True], [True, False], [False, False]])
def test_argmax_wanted(unwanted):
    text = """(float[2, T, 8192] x, bool[2, 1] unwanted) => (int64[2, T] y) {
        zero = Constant<value_int = 0>()  best = ArgMax<axis = 2, keepdims = 0>(x)  y = Where(unwanted, zero, best) }"""
    ops = {"Not": 1, "Cast": 2, "ReduceMax": 1, "If": 1}
    passes = skip_unused_argmax, argmax_blocks, name_branches
    check(*passes, text=text, feeds={"x": ties(6, 8192), "unwanted": np.array(unwanted)[:, None]}, ops=ops, fired=2)


@pytest.mark.parametrize(
    "change", [("value_int = 0", "value_int = 1"), ("Where(unwanted, zero, best)", "Where(unwanted, best, zero)")]
)
def test_an_argmax_that_is_always_wanted_stays(change):
    text = """(float[2, T, 64] x, bool[2, 1] unwanted) => (int64[2, T] y) {
        zero = Constant<value_int = 0>()  best = ArgMax<axis = 2, keepdims = 0>(x)  y = Where(unwanted, zero, best) }"""
    unchanged(skip_unused_argmax, text=text.replace(*change))


ROWS = """(float[{batch}, R, 6] x, int64[2, P, {each}] rows) => (float[2, P, 6] y) <int64[3] whole = {{2, 3, 6}}> {{
    index = Expand(rows, whole)  y = GatherElements<axis = {axis}>(x, index) }}"""
GATHERED = {"batch": 2, "each": 1, "axis": 1}


def test_gather_rows():
    feeds = {"x": normal(2, 4, 6), "rows": np.array([[[1], [3], [1]], [[0], [2], [2]]])}
    check(gather_rows, text=ROWS.format(**GATHERED), feeds=feeds, ops={"GatherND": 1})


@pytest.mark.parametrize("change", [{"batch": 3}, {"each": 6}, {"axis": 2}])
def test_what_gathers_numbers_stays(change):
    unchanged(gather_rows, text=ROWS.format(**(GATHERED | change)))


def test_commit_kept():
    before = graph("""(int64[2, 6] ring, int64[2, R] rows, int64[2] length) => (int64[2, 6] updated) {
        updated = speccompile.Commit<axis = 1, mode = "linear">(ring, rows, length) }""")
    feeds = {"rows": np.array([[90, 91], [92, 93]]), "length": np.array([4, 0])}
    ring = np.arange(12).reshape(2, 6)

    def named(model: ir.Model) -> int:
        """Give values the names that onnx's text form cannot have: those with a dot."""
        model.graph.inputs[0].name = "kept.ring"
        return 0

    assert apply(commit_persistent, before=before)[0] == 0  # what does not outlive a generation stays
    fired, after, ops = apply(named, commit_persistent, before=before)
    assert (fired, ops["ScatterElements"], "Commit" in ops) == (1, 1, False)
    (expected,) = ReferenceEvaluator(before).run(None, {"ring": ring, **feeds})
    np.testing.assert_array_equal(run(after, {"kept.ring": ring, **feeds})[0], expected)


def test_cast_like():
    text = """(float[3] x, int64[3] a) => (int64[3] y) {
        like = Identity(a)  sum = Add(like, a)  y = CastLike(x, sum) }"""
    check(cast_like, text=text, feeds={"x": normal(3), "a": np.arange(3)}, ops={"Cast": 1})


def test_transposed_weights():
    weights = ", ".join(map(str, range(12)))
    text = f"""(float[T, 4] x) => (float[T, 3] y, float[T, 3] z)
        <float[3, 4] w = {{{weights}}}, float[3, 4] tied = {{{weights}}}> {{
        zero = Constant<value_int = 0>()  last = Constant<value_ints = [1]>()
        a = Transpose<perm = [1, 0]>(w)  y = MatMul(x, a)
        b = Transpose<perm = [1, 0]>(tied)  two = MatMul(x, b)  first = Gather(tied, zero)  row = MatMul(x, first)
        column = Unsqueeze(row, last)  z = Sub(two, column) }}"""
    ops = {"MatMul": 3, "Transpose": 1, "Gather": 1, "Unsqueeze": 1, "Sub": 1}
    check(transposed_weights, text=text, feeds={"x": normal(5, 4)}, ops=ops)


def test_convolve_slices():
    text = """
    (float[2, 1, window, 3] rows, float[2, 1, 3, 3] state, float[3, 4] weight) => (float[2, 1, window, 3] result)
    { result = speccompile.Convolve (rows, state, weight) }"""
    ops = {"Concat": 1, "Transpose": 1, "Slice": 4, "Gather": 4, "Mul": 4, "Add": 3}
    feeds = {"state": normal(2, 1, 3, 3), "weight": normal(3, 4)}
    for tokens in (1, 2, 9):
        check(convolve_slices, text=text, feeds={**feeds, "rows": normal(2, 1, tokens, 3)}, ops=ops)


def test_whole_slices():
    """Keep slices of a part, and those in the other direction."""
    text = """(float[1, 5, 4] x) => (float[1, 5, 4] y, float[1, 3, 4] part) {
        first = Constant <value_ints = [-5]> ()
        last = Constant <value_ints = [100]> ()
        axis = Constant <value_ints = [1]> ()
        forward = Constant <value_ints = [1]> ()
        backward = Constant <value_ints = [-1]> ()
        before_all = Constant <value_ints = [-100]> ()
        second = Constant <value_ints = [2]> ()
        all = Slice (x, first, last, axis, forward)
        turned = Slice (all, last, before_all, axis, backward)
        y = Sub (all, turned)
        part = Slice (all, second, last, axis, forward)
    }"""
    check(remove_noop_slices, text=text, feeds={"x": normal(1, 5, 4)}, ops={"Slice": 2, "Sub": 1})
