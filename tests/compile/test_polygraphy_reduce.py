"""The reduction of a graph that TensorRT refuses or crashes on: few nodes, no weights, the same failure."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import tensorrt_rtx
from onnx import TensorProto, helper, numpy_helper

from speccompile.compiler.diagnose import reduce
from speccompile.compiler.diagnose.failure import Failure
from speccompile.compiler.diagnose.reduce import GRAPH, REPORT, reduce_failure
from speccompile.compiler.diagnose.weightless import WEIGHTS, write_weightless
from speccompile.compiler.engines import Limits, Settings, make_settings
from speccompile.contract import Graph
from speccompile.errors import BuildError, EngineError
from tests.compile import tiny_graphs
from tests.compile.test_masked import export_case, verify
from tests.compile.test_polygraphy_capability import bits, both, mystery
from tests.compile.tiny_graphs import insert

pytestmark = pytest.mark.sweep("builds an engine for each graph that it tries")

LIMITS = Limits(seconds=300, memory=8_000_000_000)
POLYGRAPHY = "import sys; from polygraphy.tools import main; sys.exit(main())"


def ops(folder: Path) -> list[str]:
    return [node.op_type for node in onnx.load(folder / GRAPH).graph.node]


def run_reported_command(folder: Path) -> "CompletedProcess[str]":
    """Return what the report tells a reader to run, in its folder."""
    line = next(line for line in (folder / REPORT).read_text().splitlines() if " polygraphy " in line)
    variable, program, *arguments = line.split()
    assert program == "polygraphy"
    name, value = variable.split("=")
    command = [sys.executable, "-c", POLYGRAPHY, *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ | {name: value}, capture_output=True, text=True)


def settings(graph: Graph, capability: str = "8.9") -> Settings:
    return make_settings(
        graph, backend="tensorrt_rtx", compute_capability=capability, precision={"target": "float32"}, tokens=4,
        catch_up=2, prefill_chunk=16, max_length=64,
    )  # fmt: skip


@pytest.fixture
def without_polygraphy(monkeypatch) -> None:
    """Let `debug reduce` fail at once."""
    ended = CompletedProcess([], 1, "[I] RUNNING\n", "[!] no such thing\n")
    monkeypatch.setattr(reduce, "run_python", lambda *arguments, **options: ended)


def test_a_planted_operator_of_a_whole_model(tmp_path):
    made = export_case("llama", tmp_path, verify(1))
    path = made.folder / made.write("float32")
    model = onnx.load(path, load_external_data=False)
    (scores,) = [node for node in model.graph.node if node.name == "node_linear_8"]
    assert scores.op_type == "MatMul", "in the middle of the second layer"
    model.graph.initializer.append(numpy_helper.from_array(np.array(3), "period"))
    index = list(model.graph.node).index(scores)
    planted = [
        helper.make_node("Cast", [scores.input[0]], ["whole"], "cast", to=TensorProto.INT64),
        helper.make_node("BitwiseAnd", ["whole", "period"], ["bits"], "planted_bits"),
        helper.make_node("Cast", ["bits"], ["back"], "back", to=TensorProto.FLOAT),
    ]
    scores.input[0] = "back"
    nodes = [*model.graph.node[:index], *planted, *model.graph.node[index:]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, path)
    folder = reduce_failure(path, settings(made.graph), tmp_path / "out" / "reduced", LIMITS)
    assert len(nodes) > 150
    assert ops(folder) == ["BitwiseAnd"]
    assert sorted(each.name for each in folder.iterdir()) == [GRAPH, REPORT]
    report = (folder / REPORT).read_text()
    assert report.startswith(f"TensorRT's parser fails on {GRAPH}\n")
    assert f"tensorrt_rtx {tensorrt_rtx.__version__}\n" in report
    assert "node 'planted_bits' (BitwiseAnd): UNSUPPORTED_NODE in checkBitwiseAnd: false" in report
    assert f"{len(nodes)} nodes of verify.float32.onnx became 1.\n" in report
    assert "Sizes that vary were fixed: window [1, 5], logit_rows [5]." in report
    assert "planted_bits" in run_reported_command(folder).stdout


def test_one_of_two_failures_is_enough(tmp_path, without_polygraphy):
    tiny = tiny_graphs.write(tmp_path / "graphs", change=both)
    folder = reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "out", LIMITS)
    assert ops(folder) in (["Mystery"], ["BitwiseAnd"])


def test_a_refusal_of_the_builder(tmp_path):
    """Compute capability 7.5 has no products of float32."""
    tiny = tiny_graphs.write(tmp_path / "graphs")
    folder = reduce_failure(tiny.onnx, tiny.settings("7.5"), tmp_path / "out", LIMITS)
    assert ops(folder) == ["MatMul"]
    assert "FP32 GEMM is not supported" in (folder / REPORT).read_text()
    assert "FP32 GEMM is not supported" in run_reported_command(folder).stdout


def int4_twice(path: Path) -> Settings:
    """Write a graph in whose middle two products share an int4 weight, which crashes TensorRT-RTX 1.7. Returns
    settings."""
    size = 512
    shape = ["rows", 8, size]
    nodes = [helper.make_node("Relu", ["x"], ["positive"], "first")]
    nodes.append(helper.make_node("DequantizeLinear", ["weight", "scale"], ["wide"], "dq", axis=0, block_size=32))
    nodes += [helper.make_node("MatMul", [each, "wide"], [f"{each}_out"], each) for each in ("positive", "y")]
    nodes += [helper.make_node("Add", ["positive_out", "y_out"], ["sum"], "add")]
    nodes += [helper.make_node("Sqrt", ["sum"], ["z"], "last")]
    weight = helper.make_tensor("weight", TensorProto.INT4, (size, size), b"\x21" * (size * size // 2), raw=True)
    scale = numpy_helper.from_array(np.full((size // 32, size), 0.01, np.float16), "scale")
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name in names] for names in ("xy", "z")
    )
    body = helper.make_graph(nodes, "int4", inputs, outputs, [weight, scale])
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), path)
    profile = dict.fromkeys("xy", ((1, 8, size), (2, 8, size), (3, 8, size)))
    return Settings("tensorrt_rtx", "8.9", {"target": "int4"}, profile)


@pytest.mark.skipif(not tensorrt_rtx.__version__.startswith("1.7."), reason="a fault of TensorRT-RTX 1.7")
def test_a_crash_of_the_builder(tmp_path):
    path = tmp_path / "int4.onnx"
    folder = reduce_failure(path, int4_twice(path), tmp_path / "out", LIMITS)
    assert ops(folder) == ["DequantizeLinear", "MatMul", "MatMul"]
    assert "the builder crashed with SIGSEGV" in (folder / REPORT).read_text()
    assert set((folder / WEIGHTS).read_bytes()) == {0x3C}, "nothing of the model's own weights"
    assert run_reported_command(folder).returncode == -11


def test_a_graph_that_builds(tmp_path):
    tiny = tiny_graphs.write(tmp_path)
    with pytest.raises(BuildError, match=r"verify.engine.onnx builds for .* 8.9, .*: there is nothing to reduce"):
        reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "out", LIMITS)
    assert not (tmp_path / "out").exists()


def test_a_failure_that_needs_sizes_that_vary(tmp_path):
    """Fixed sizes are folded, and with them the operator that TensorRT does not know."""

    def odd_width(model: onnx.ModelProto) -> None:
        insert(model, "choose", [helper.make_node("Shape", ["window"], ["width"], "width", start=1),
                                 helper.make_node("BitwiseAnd", ["width", "width"], ["same"], "planted_bits"),
                                 helper.make_node("Cast", ["same"], ["number"], "number", to=TensorProto.FLOAT),
                                 helper.make_node("Add", ["logits", "number"], ["sum"], "sum")])  # fmt: skip

    tiny = tiny_graphs.write(tmp_path / "graphs", change=odd_width)
    folder = reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "out", LIMITS)
    assert "BitwiseAnd" in ops(folder)
    assert "Sizes that vary still do." in (folder / REPORT).read_text()


def test_a_failure_of_the_weights_themselves(tmp_path):
    """Reduce a scale below zero, of 1 KB, whose place a placeholder takes."""

    def scaled(model: onnx.ModelProto) -> None:
        insert(model, "embed", [helper.make_node("DequantizeLinear", ["table", "scale"], ["embedding2"], "dq", axis=1)])
        tiny_graphs.node(model, "embed").input[0] = "embedding2"
        model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 256), np.int8), "table"))
        model.graph.initializer.append(numpy_helper.from_array(np.full(256, -1, np.float32), "scale"))
        tiny_graphs.node(model, "split_heads").input[0] = "narrow"
        tiny_graphs.node(model, "score").input[0] = "narrow"
        insert(model, "split_heads", [helper.make_node("MatMul", ["hidden", "narrowing"], ["narrow"], "narrow")])
        model.graph.initializer.append(numpy_helper.from_array(np.ones((256, 8), np.float32), "narrowing"))

    tiny = tiny_graphs.write(tmp_path / "graphs", change=scaled)
    with pytest.raises(BuildError, match=r"verify.engine.onnx fails with its own weights but not with others"):
        reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "out", LIMITS)


def test_a_failure_that_comes_and_goes(tmp_path, without_polygraphy, monkeypatch):
    tiny, answers = tiny_graphs.write(tmp_path / "graphs", change=bits), iter([1, 0])
    failure = Failure("parser", frozenset({"BitwiseAnd UNSUPPORTED_NODE in checkBitwiseAnd: false"}), "planted_bits")
    monkeypatch.setattr(reduce, "find_failure", lambda *arguments: failure if next(answers) else None)
    with pytest.raises(BuildError, match=r"reduced.onnx failed a moment ago and does not now"):
        reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "out", LIMITS)


def test_a_folder_that_cannot_be_written(tmp_path):
    tiny = tiny_graphs.write(tmp_path / "graphs", change=bits)
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match=r"the reduced graph cannot be written to .*file: File exists"):
        reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "file", LIMITS)


def test_a_library_that_is_missing(tmp_path):
    tiny = tiny_graphs.write(tmp_path)
    with pytest.raises(
        EngineError, match=r"verify.engine.onnx cannot be tried: .* module tensorrt.*cannot be"
    ) as raised:
        reduce_failure(tiny.onnx, tiny.settings(backend="tensorrt"), tmp_path / "out", LIMITS)
    assert "doctor" in raised.value.hint


def test_what_polygraphy_cannot_reduce_is_cut(tmp_path, without_polygraphy, caplog):
    tiny = tiny_graphs.write(tmp_path / "graphs", change=mystery)
    folder = reduce_failure(tiny.onnx, tiny.settings(), tmp_path / "out", LIMITS)
    assert ops(folder) == ["Mystery"]
    assert "polygraphy's debug reduce did not get far: [!] no such thing" in caplog.messages


def test_placeholders_hold_no_weights(tmp_path):
    """Compare the file's size with the largest weight; tables of integers are kept."""
    table = np.arange(4096)
    weights = {"a": np.ones((64, 32), np.float32), "b": np.ones((128, 32), np.float32), "small": np.ones(4, np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in {**weights, "table": table}.items()]
    body = helper.make_graph([], "weights", [], [], tensors)
    path = write_weightless(ir.from_proto(helper.make_model(body, ir_version=10)), tmp_path, "light.onnx")
    light = onnx.load(path)
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in light.graph.initializer}
    assert (found["table"] == table).all()
    assert (found["small"] == 1).all()
    assert len({*found["a"].ravel(), *found["b"].ravel()}) == 1
    assert (tmp_path / WEIGHTS).stat().st_size < 128 * 32 * 4 + 1024
