"""The two neutral ops: torch's eager meaning, the ONNX function's body and the lowered form are one and the same."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as attention_with_sinks

from speccompile.compiler.lower import native, neutral
from speccompile.compiler.lower import onnxruntime as lowering
from speccompile.compiler.step import ops

HEADS, GROUPS, TOKENS, ROWS, BUFFER, WIDTH, VALUE_WIDTH = 4, 2, 3, 5, 12, 8, 6
NAMES = ("query", "key_rows", "value_rows", "key_cache", "value_cache", "length", "positions", "bias")


def attend_inputs(lengths: list[int], op: str = "Attend") -> dict[str, torch.Tensor]:
    """Return a window of TOKENS queries over ROWS in-step rows (a chain whose last queries these are), ragged rows; in
    the order of the op's inputs."""
    batch, generator = len(lengths), torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    length, row = torch.tensor(lengths), torch.arange(ROWS)
    queries = row[ROWS - TOKENS :]
    visible = row[None] <= queries[:, None]
    sinks = {"sinks": 2 * random(HEADS)} if "Sinks" in op else {}
    return {
        "query": random(batch, HEADS, TOKENS, WIDTH + VALUE_WIDTH * ("Latent" in op)),
        "key_rows": random(batch, GROUPS, ROWS, WIDTH),
        "value_rows": random(batch, GROUPS, ROWS, VALUE_WIDTH),
        "key_cache": random(batch, GROUPS, BUFFER, WIDTH),
        "value_cache": random(batch, GROUPS, BUFFER, VALUE_WIDTH),
        "length": length,
        "positions": length[:, None] + queries,
        "bias": torch.where(visible, 0.0, ops.HIDDEN).expand(batch, 1, -1, -1).contiguous(),
    } | sinks


def attended(inputs: dict[str, torch.Tensor], op: str, scale: float, softcap: float, window: int) -> torch.Tensor:
    """Return what the op means."""
    given = (inputs[name] for name in NAMES)
    return ops.attend(*given, scale, softcap, window, inputs.get("sinks"), "Latent" in op)


def context_shape(inputs: dict[str, torch.Tensor], op: str) -> list[int]:
    rows = inputs["key_rows" if "Latent" in op else "value_rows"]
    return [*inputs["query"].shape[:3], rows.shape[3]]


def attend_model(
    inputs: dict[str, torch.Tensor], scale: float, softcap: float, window: int, op: str = "Attend"
) -> onnx.ModelProto:
    node = helper.make_node(
        op,
        list(inputs),
        ["context"],
        domain=neutral.DOMAIN,
        scale=scale,
        softcap=softcap,
        window=window,
        ring=0,
    )
    kinds = {
        name: TensorProto.INT64 if value.dtype == torch.int64 else TensorProto.FLOAT for name, value in inputs.items()
    }
    graph = helper.make_graph(
        [node],
        "attend",
        [helper.make_tensor_value_info(name, kinds[name], inputs[name].shape) for name in inputs],
        [helper.make_tensor_value_info("context", TensorProto.FLOAT, context_shape(inputs, op))],
    )
    opsets = [helper.make_opsetid("", neutral.OPSET), helper.make_opsetid(neutral.DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=neutral.functions(), ir_version=10)


def lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    rewritten = ir.from_proto(model)
    lowering.lower(rewritten)
    return ir.to_proto(rewritten)


def run(model: onnx.ModelProto, inputs: dict[str, torch.Tensor]) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})[0]


@pytest.mark.parametrize("op", neutral.ATTENDS)
@pytest.mark.parametrize("lengths", [[7], [0], [4, 9], [0, 3]])
@pytest.mark.parametrize(("softcap", "window"), [(0.0, 0), (3.0, 0), (0.0, 4), (3.0, 4)])
def test_all_forms_of_attend_agree(op, lengths, softcap, window):
    inputs = attend_inputs(lengths, op)
    bias = inputs["bias"]
    if window:  # in-step rows out of the window are hidden by the bias: that is the caller's part
        distance = inputs["positions"][:, :, None] - (inputs["length"][:, None] + torch.arange(ROWS))[:, None]
        inputs["bias"] = bias + torch.where(distance < window, 0.0, ops.HIDDEN)[:, None]
    expected = attended(inputs, op, 0.3, softcap, window).numpy()
    model = attend_model(inputs, 0.3, softcap, window, op)
    reference = ReferenceEvaluator(model).run(None, {name: value.numpy() for name, value in inputs.items()})[0]
    np.testing.assert_allclose(reference, expected, atol=2e-6)
    np.testing.assert_allclose(run(model, inputs), expected, atol=2e-6)
    np.testing.assert_allclose(run(lowered(model), inputs), expected, atol=2e-6)


@pytest.mark.parametrize(("softcap", "window"), [(0.0, 0), (2.0, 5)])
def test_attend_is_the_attention_of_transformers(softcap, window):
    """Compare a row of 7 committed tokens with transformers' eager attention over all 12 keys with a mask."""
    inputs, length = attend_inputs([7]), 7
    keys = torch.cat([inputs["key_cache"][:, :, :length], inputs["key_rows"]], 2)
    values = torch.cat([inputs["value_cache"][:, :, :length], inputs["value_rows"]], 2)
    distance = inputs["positions"][0][:, None] - torch.arange(length + ROWS)
    seen = (distance >= 0) & ((distance < window) if window else True)
    module = torch.nn.Module()
    module.num_key_value_groups = HEADS // GROUPS
    expected, _ = eager_attention_forward(
        module, inputs["query"], keys, values, torch.where(seen, 0.0, -1e30)[None, None], scaling=0.3,
        softcap=softcap or None,
    )  # fmt: skip
    in_step = distance[:, length:]
    hidden = (in_step >= window) if window else torch.zeros_like(in_step, dtype=torch.bool)
    inputs["bias"] = inputs["bias"] + torch.where(hidden, ops.HIDDEN, 0.0)
    got = ops.attend(*(inputs[name] for name in NAMES), 0.3, softcap, window)
    torch.testing.assert_close(got.transpose(1, 2), expected, atol=2e-6, rtol=0)


def test_sinks_are_those_of_gpt_oss():
    inputs, length = attend_inputs([7], "AttendSinks"), 7
    keys = torch.cat([inputs["key_cache"][:, :, :length], inputs["key_rows"]], 2)
    values = torch.cat([inputs["value_cache"][:, :, :length], inputs["value_rows"]], 2)
    seen = inputs["positions"][0][:, None] >= torch.arange(length + ROWS)
    module = torch.nn.Module()
    module.num_key_value_groups, module.sinks = HEADS // GROUPS, inputs["sinks"]
    mask = torch.where(seen, 0.0, -1e30)[None, None]
    expected, _ = attention_with_sinks(module, inputs["query"], keys, values, mask, scaling=0.3)
    got = attended(inputs, "AttendSinks", 0.3, 0.0, 0)
    torch.testing.assert_close(got.transpose(1, 2), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("op", neutral.ATTENDS)
def test_a_result_does_not_depend_on_what_lies_behind_the_length(op):
    inputs = attend_inputs([4, 9], op)
    model = lowered(attend_model(inputs, 0.3, 0.0, 0, op))
    before = run(model, inputs)
    for name in ("key_cache", "value_cache"):
        for row, length in enumerate(inputs["length"]):
            inputs[name][row, :, length:] = 1e6
    np.testing.assert_array_equal(run(model, inputs), before)


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 9, 4), 2), ((2, 9), 1)])
def test_all_forms_of_commit_agree(shape, axis):
    buffer = torch.arange(float(np.prod(shape))).reshape(shape)
    rows = -torch.ones(tuple(4 if i == axis else n for i, n in enumerate(shape)))
    length = torch.tensor([0, 5])
    expected = buffer.clone().transpose(1, axis)
    for row, start in enumerate(length):
        expected[row, start : start + 4] = -1
    got = ops.commit(buffer, rows, length, axis)
    assert torch.equal(got, expected.transpose(1, axis))

    node = helper.make_node(
        "Commit", ["buffer", "rows", "length"], ["updated"], domain=neutral.DOMAIN, axis=axis, mode=neutral.LINEAR
    )
    inputs = {"buffer": buffer, "rows": rows, "length": length}
    graph = helper.make_graph(
        [node],
        "commit",
        [helper.make_tensor_value_info("buffer", TensorProto.FLOAT, shape),
         helper.make_tensor_value_info("rows", TensorProto.FLOAT, rows.shape),
         helper.make_tensor_value_info("length", TensorProto.INT64, (2,))],
        [helper.make_tensor_value_info("updated", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", neutral.OPSET), helper.make_opsetid(neutral.DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=neutral.functions(), ir_version=10)
    np.testing.assert_array_equal(run(model, inputs), got.numpy())
    np.testing.assert_array_equal(run(lowered(model), inputs), got.numpy())


@pytest.mark.parametrize("op", neutral.ATTENDS)
def test_what_a_lowered_graph_calls_beside_standard_ops_has_a_body_of_them(op):
    model = lowered(attend_model(attend_inputs([4, 9], op), 0.3, 2.0, 4, op))
    assert [node.op_type for node in model.graph.node if node.domain] == [op]
    (body,) = model.functions
    assert (body.domain, body.name) == (native.DOMAIN, op)
    assert {node.domain for node in body.node} == {""}
