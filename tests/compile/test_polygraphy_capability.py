"""The lint before a build: TensorRT's parser names every node that it refuses, and is asked in a process of its own."""

import signal
from importlib.util import find_spec
from subprocess import CompletedProcess, TimeoutExpired

import onnx
import pytest
from onnx import helper

from speccompile.compiler.diagnose import capability
from speccompile.compiler.diagnose.capability import Capability, Finding, check_capability, raise_unsupported
from speccompile.errors import EngineError
from tests.compile import tiny_graphs
from tests.compile.tiny_graphs import insert

CLEAN = Capability((), "")


def mystery(model: onnx.ModelProto) -> None:
    insert(model, "embed", [helper.make_node("Mystery", ["window"], ["answer"], "planted_mystery", domain="nobody")])
    node = tiny_graphs.node(model, "embed")
    node.input[:] = ["embedding", "answer"]
    model.opset_import.append(helper.make_opsetid("nobody", 1))


def bits(model: onnx.ModelProto) -> None:
    insert(model, "commit", [helper.make_node("BitwiseAnd", ["length", "length"], ["bits"], "planted_bits")])
    tiny_graphs.node(model, "commit").input[:] = ["target.key.0", "keys", "bits"]


def both(model: onnx.ModelProto) -> None:
    mystery(model)
    bits(model)


def non_zero(model: onnx.ModelProto) -> None:
    insert(model, "score", [helper.make_node("NonZero", ["hidden"], ["places"], "planted_places"),
                            helper.make_node("Cast", ["places"], ["numbers"], "numbers", to=onnx.TensorProto.FLOAT),
                            helper.make_node("ReduceSum", ["numbers"], ["sum"], "sum", keepdims=0),
                            helper.make_node("Add", ["hidden", "sum"], ["more"], "more")])  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_lowered_graph_is_clean(dtype, tmp_path, capfd):
    assert check_capability(tiny_graphs.write(tmp_path, dtype=dtype).onnx, "tensorrt_rtx") == CLEAN
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (mystery, [("Mystery", "planted_mystery", "INVALID_NODE")]),
        (bits, [("BitwiseAnd", "planted_bits", "UNSUPPORTED_NODE")]),
        (non_zero, [("NonZero", "planted_places", "UNSUPPORTED_NODE")]),
        (both, [("Mystery", "planted_mystery", "INVALID_NODE"), ("BitwiseAnd", "planted_bits", "UNSUPPORTED_NODE")]),
    ],
)
def test_planted_nodes_are_named(change, found, tmp_path):
    answer = check_capability(tiny_graphs.write(tmp_path, change=change).onnx, "tensorrt_rtx")
    assert [(each.op, each.name, each.reason.partition(" ")[0]) for each in answer.findings] == found
    assert answer.not_checked == ""


def test_weights_are_not_read(tmp_path):
    """Check a graph whose weights are missing: the cost does not depend on its size."""
    tiny = tiny_graphs.write(tmp_path, change=bits)
    with (tmp_path / tiny_graphs.WEIGHTS).open("wb") as file:
        file.truncate(1 << 40)
    assert [each.op for each in check_capability(tiny.onnx, "tensorrt_rtx").findings] == ["BitwiseAnd"]


def test_a_file_that_cannot_be_read(tmp_path):
    path = tiny_graphs.write(tmp_path).onnx
    path.write_bytes(path.read_bytes()[:-100])
    (finding,) = check_capability(path, "tensorrt_rtx").findings
    assert finding.where == "the file"
    assert finding.reason.startswith("MODEL_DESERIALIZE_FAILED")


@pytest.mark.skipif(find_spec("tensorrt") is not None, reason="TensorRT is installed here")
def test_a_missing_library_is_no_pass(tmp_path):
    answer = check_capability(tiny_graphs.write(tmp_path).onnx, "tensorrt")
    assert "needs the Python module tensorrt, which cannot be imported" in answer.not_checked


def test_a_process_that_fails(tmp_path):
    with pytest.raises(EngineError, match=r"(?s)asked about missing.onnx, ended with exit code 1.*FileNotFoundError"):
        check_capability(tmp_path / "missing.onnx", "tensorrt_rtx")


def test_a_parser_that_crashes(tmp_path, monkeypatch):
    ended = CompletedProcess([], -signal.SIGSEGV, "", "parsing\n")
    monkeypatch.setattr(capability, "run_python", lambda *arguments, **options: ended)
    with pytest.raises(EngineError, match=r"asked about verify.onnx, crashed with SIGSEGV\n  parsing") as raised:
        check_capability(tmp_path / "verify.onnx", "tensorrt_rtx")
    assert "report it" in raised.value.hint


def test_a_parser_that_does_not_end(tmp_path, monkeypatch):
    def run_out(*arguments, **options):
        raise TimeoutExpired([], options["seconds"])

    monkeypatch.setattr(capability, "run_python", run_out)
    with pytest.raises(EngineError, match=r"tensorrt_rtx's parser, asked about verify.onnx, did not answer in 600 sec"):
        check_capability(tmp_path / "verify.onnx", "tensorrt_rtx")


def test_the_error_names_everything():
    findings = [Finding("NonZero", f"node_{index}", "no plugin") for index in range(10)]
    with pytest.raises(EngineError) as raised:
        raise_unsupported(findings, "verify", "rtx-8.9")
    lines = str(raised.value).splitlines()
    assert lines[0] == "engine 'rtx-8.9', graph 'verify': TensorRT's parser refuses 10 nodes:"
    assert lines[1] == "  node 'node_0' (NonZero): no plugin"
    assert lines[8:] == ["  node 'node_7' (NonZero): no plugin", "  and 2 more"]
    assert "onnxruntime" in raised.value.hint


def test_the_error_for_one_node():
    with pytest.raises(EngineError, match=r"parser refuses a node:\n  node 'n' \(Op\): why$"):
        raise_unsupported([Finding("Op", "n", "why")], "draft", "rtx")
