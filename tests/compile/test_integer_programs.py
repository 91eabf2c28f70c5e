"""Programs of integers: that they give what onnx's reference evaluator gives, with and without the library, and refuse
what is wrong."""

import re

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.native import DOMAIN, INTEGERS
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.lower.passes.integer_programs import integer_programs
from speccompile.runtime.devices.sessions import session_options
from tests.compile.kernel_runs import KernelRuns, needs_library, run_bodies

HEADER = f'<ir_version: 10, opset_import: ["" : {neutral.OPSET}, "{DOMAIN}" : 1]>'
PADDING = "p = Add(y, one)  q = Add(p, one)  r = Sub(q, one)  z = Sub(r, one)"
"""Nodes enough for a program behind the one that is tried."""


def graph(statements: str, inputs: str, results: str = "int64 z") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"{HEADER} graph ({inputs}) => ({results}) <int64[1] one = {{1}}, int64[1] zero = {{0}}> {{{statements}}}"
    )


def lowered(model: onnx.ModelProto) -> tuple[list[str], onnx.ModelProto]:
    """Return the operators of a graph with programs, and the graph."""
    after = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    integer_programs(after)
    add_functions(after)
    proto = ir.to_proto(after)
    onnx.checker.check_model(proto)
    return [node.op_type for node in proto.graph.node if node.op_type != "Constant"], proto


def constant(name: str, *values: int) -> str:
    return f"{name} = Constant<value_ints = {list(values)}>() "


X, Y = "int64[2, 3] x", "int64[2, 3] o"
STATEMENTS = {
    **{op: (f"y = {op}(x, o)", f"{X}, {Y}") for op in ("Add", "Sub", "Mul", "Min", "Max")},
    **{
        f"{op} of booleans": (f"b = {op}(x, o) y = Cast<to = 7>(b)", f"{X}, {Y}")
        for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    },
    "Div": ("d = Add(o, one) e = Max(d, one) y = Div(x, e)", f"{X}, {Y}"),
    "Mod": ("d = Min(o, zero) e = Sub(d, one) y = Mod(x, e)", f"{X}, {Y}"),
    "rows and columns": ("y = Add(x, o)", "int64[2, 1] x, int64[1, 4] o"),
    "fewer axes": ("y = Sub(x, o)", "int64[2, 3, 2] x, int64[3, 1] o"),
    "logic": ("a = Cast<to = 9>(x) b = Cast<to = 9>(o) c = And(a, b) d = Or(c, b) e = Not(d) y = Cast<to = 7>(e)",
              f"{X}, {Y}"),
    "Where": ("y = Where(b, x, o)", "bool[2, 1] b, int64[3] x, int64[2, 3] o"),
    "Clip": ("l = Squeeze(one) y = Clip(x, , l)", X),
    "Clip of both": ("l = Squeeze(one) k = Squeeze(zero) y = Clip(x, k, l)", X),
    "Shape": ("s = Shape(f) e = Shape<start = 1, end = -1>(f) y = Mul(s, e)", "float[2, 5, 3] f"),
    "Range": ("s = Shape<start = 1>(f) k = Squeeze(zero) n = Squeeze(s) d = Constant<value_int = 1>()"
              " y = Range(k, n, d)", "float[2, 5] f"),
    "Unsqueeze": (constant("axes", -1, 0) + "y = Unsqueeze(x, axes)", X),
    "Squeeze": (constant("axes", 1) + "y = Squeeze(x, axes)", "int64[2, 1, 1, 3] x"),
    "Squeeze all": ("y = Squeeze(x)", "int64[2, 1, 1, 3] x"),
    "Reshape": (constant("to", 3, 0, -1) + "y = Reshape(x, to)", "int64[6, 2] x"),
    "Expand": (constant("to", 2, 1, 3) + "y = Expand(x, to)", "int64[4, 1] x"),
    "Concat": ("y = Concat<axis = 1>(x, o, x)", "int64[2, 3, 2] x, int64[2, 1, 2] o"),
    "GatherElements": ("m = Mod(o, t) y = GatherElements<axis = 0>(x, m)", "int64[2, 3] x, int64[4, 3] o, int64[1] t"),
    "GatherElements of the last": ("m = Mod(o, t) k = Sub(m, t) y = GatherElements<axis = 1>(x, k)",
                                   "int64[2, 3] x, int64[2, 5] o, int64[1] t"),
    "Gather": ("m = Mod(o, t) y = Gather<axis = 1>(x, m)", "int64[2, 3, 2] x, int64[2, 2] o, int64[1] t"),
    "Slice": (constant("s", 1, -2) + constant("e", 9, -1) + constant("a", 2, 0) + "y = Slice(x, s, e, a)",
              "int64[3, 2, 4] x"),
    "CumSum": ("k = Constant<value_int = 1>() y = CumSum(x, k)", "int64[2, 4, 3] x"),
    "ReduceSum": (constant("axes", 1) + "y = ReduceSum<keepdims = 0>(x, axes)", "int64[2, 4, 3] x"),
    "ReduceSum that keeps": (constant("axes", -1) + "y = ReduceSum(x, axes)", "int64[2, 4] x"),
    "overflow": ("b = Mul(x, big) c = Mul(b, big) y = Add(c, b)", f"{X}, int64[1] big"),
    "nothing": ("y = Concat<axis = 0>(x, x)", "int64[0, 3] x"),
}  # fmt: skip


def feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    random, found = np.random.default_rng(seed), {}
    for given in model.graph.input:
        kind = given.type.tensor_type
        shape = [size.dim_value for size in kind.shape.dim]
        values = random.integers(-4, 5, shape)
        values = np.full(shape, {"t": 2, "big": 2**40}[given.name]) if given.name in ("t", "big") else values
        found[given.name] = values.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found


@pytest.mark.parametrize(("statement", "inputs"), STATEMENTS.values(), ids=STATEMENTS)
@needs_library
def test_steps_give_what_the_reference_gives(statement, inputs):
    model = graph(f"{statement} {PADDING}", inputs)
    ops, after = lowered(model)
    assert ops == [INTEGERS]
    for seed in range(3):
        given = feeds(model, seed)
        expected = ReferenceEvaluator(model).run(None, given)[0]
        for found in (KernelRuns(after).run(given)[0], run_bodies(after, given)[0]):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


GROUPS = {
    "results of others": (
        "a = Add(x, one) b = Add(a, one) c = Mul(b, b) f = Cast<to = 1>(c) g = Relu(f)"
        " h = Cast<to = 7>(g) i = Add(h, one) j = Add(i, a) z = Sub(j, one)",
        "int64[2, 3] x", "int64 z", [INTEGERS, "Cast", "Relu", "Cast", INTEGERS],
    ),
    "booleans that others read": (
        "a = Add(x, one) b = Add(a, one) c = Less(b, o) d = Not(c) f = Cast<to = 1>(d) z = Relu(f)",
        f"{X}, {Y}", "float z", [INTEGERS, "Cast", "Cast", "Relu"],
    ),
    "booleans that another program reads": (
        "d = Add(x, one) a = Add(d, one) b = Less(a, o) c = Not(b) f = Cast<to = 1>(a) g = Relu(f) h = Cast<to = 7>(g)"
        " i = Add(h, one) j = Add(i, one) z = Where(c, j, i)",
        f"{X}, {Y}", "int64 z", [INTEGERS, "Cast", "Relu", "Cast", INTEGERS],
    ),
    "a choice of numbers": (
        "a = Add(x, one) b = Less(a, o) y = Constant<value_float = 0.0>() n = Constant<value_float = -1e30>()"
        " m = Where(b, y, n) k = Constant<value_ints = [1]>() u = Unsqueeze(m, k) z = Relu(u)",
        f"{X}, {Y}", "float z", [INTEGERS, "Choose", "Relu"],
    ),
    "too few": ("a = Add(x, one) f = Cast<to = 1>(a) z = Relu(f)", X, "float z", ["Add", "Cast", "Relu"]),
    "what is written in place": (
        "a = Add(x, one) b = Add(a, one) c = Add(b, x) w = TensorScatter<axis = 1>(x, o) z = Add(w, one)",
        "int64[2, 3] x, int64[2, 1] o", "int64 z, int64 c", ["Add", "Add", "Add", "TensorScatter", "Add"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("statements", "inputs", "results", "ops"), GROUPS.values(), ids=GROUPS)
@needs_library
def test_a_program_takes_what_needs_nothing_of_it_by_way_of_others(statements, inputs, results, ops):
    model = graph(statements, inputs, results)
    found, after = lowered(model)
    assert found == ops
    given = feeds(model)
    expected = run_bodies(model, given)
    for values in (KernelRuns(after).run(given), run_bodies(after, given)):
        for one, other in zip(values, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def program(steps: str, results: str) -> onnx.ModelProto:
    node = onnx.helper.make_node(INTEGERS, ["x"], ["y"], domain=DOMAIN, steps=steps, results=results)
    node.attribute.append(onnx.helper.make_attribute("inputs", 1))
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in "xy"]
    opsets = [onnx.helper.make_opsetid("", neutral.OPSET), onnx.helper.make_opsetid(DOMAIN, 1)]
    made = onnx.helper.make_graph([node], "program", values[:1], values[1:])
    return onnx.helper.make_model(made, opset_imports=opsets, ir_version=10)


UNFIT = "received a constant whose values do not fit its sizes"
WRONG = {
    "no operator": ("Sine 0", "1", 'received the step "Sine", expected an operator that it knows'),
    "too few inputs": ("Add 0", "1", "Add: received 1 inputs and 0 settings"),
    "no settings": ("Concat 0 0", "1", "Concat: received 2 inputs and 0 settings"),
    "a later value": ("Add 0 1", "1", "Add: received the number 1, expected that of an earlier value"),
    "no number": ("Add 0 x", "1", 'Add: received "x", expected a number'),
    "a result that is an input": ("Identity 0", "0", "results: received the number 0, expected one of a step"),
    "a constant of too many values": ("Constant ; 1 3 1 2", "1", UNFIT),
    "a constant of a negative size": ("Constant ; 1 -1", "1", UNFIT),
    "a constant of many axes": ("Constant ; 99 1", "1", UNFIT),
    "an axis": ("Concat 0 0 ; 2", "1", "received axis 2 of 2"),
    "an index": ("Constant ; 1 1 7\nGather 0 1 ; 0", "2", "received the index 7 of 2 numbers"),
    "shapes": ("Constant ; 1 2 7 7\nAdd 0 1", "2", "received the shapes [2, 3] and [2], which do not broadcast"),
    "a missing input": ("Add 0 -", "1", "received no input 1"),
    "a division": ("Constant ; 0 0\nDiv 0 1", "2", "received a division by 0"),
    "a size": ("Constant ; 1 1 4294967296\nExpand 0 1", "2", "which do not broadcast"),
    "more numbers than memory": ("Constant ; 2 1 1 1\nConstant ; 1 2 4294967296 1\nExpand 1 2", "3",
                                 "received 4294967296 numbers for one value"),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "results", "text"), WRONG.values(), ids=WRONG)
@needs_library
def test_what_is_wrong_is_refused(steps, results, text):
    def run() -> None:
        session = ort.InferenceSession(program(steps, results).SerializeToString(), session_options(1))
        session.run(None, {"x": np.zeros((2, 3), np.int64)})

    with pytest.raises(Exception, match=re.escape(text)):
        run()
