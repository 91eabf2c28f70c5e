"""TensorRT-RTX builds engines here, without a GPU; what it refuses becomes an error."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import onnx
import pytest
import tensorrt_rtx
from onnx import helper

from speccompile.bundle import EngineEntry
from speccompile.bundle.delta import read_delta
from speccompile.compiler.engines import process, store_weights_once
from speccompile.compiler.engines.memory_estimate import BuilderMemory
from speccompile.errors import EngineError
from tests.compile import tiny_graphs
from tests.compile.engine_builds import LIMITS, build, refusal
from tests.compile.tiny_graphs import Tiny, insert, node, plant


@pytest.mark.sweep("an engine each", but=["8.9-", "7.5-"])
@pytest.mark.parametrize(
    ("capability", "dtype"),
    [("8.9", "float32"), ("7.5", "float16"), ("8.6", "bfloat16"), ("12.0", "float16"), ("12.1", "float32")],
)
def test_an_engine_and_what_is_known_of_it(tmp_path, capfd, capability, dtype):
    tiny = tiny_graphs.write(tmp_path, dtype=dtype)
    report = build(tiny, tmp_path / "verify.plan", precision=dtype, capability=capability)
    file = onnx.load(tiny.onnx, load_external_data=False).graph
    for kind, tensors in (("inputs", file.input), ("outputs", file.output)):
        shapes = [[size.dim_value or -1 for size in each.type.tensor_type.shape.dim] for each in tensors]
        assert [(row["name"], row["shape"]) for row in report[kind]] == [
            (each.name, shape) for each, shape in zip(tensors, shapes, strict=True)
        ]
    assert [row["dtype"] for row in report["inputs"]] == ["int64", "int64", dtype]
    assert report["aliases"] == {"target.key.0.out": "target.key.0"}
    assert report["profile"] == {"window": [[1, 1], [1, 4], [1, 8]]}
    assert report["parsed_layers"]["KV_CACHE_UPDATE"] == report["parsed_layers"]["MATRIX_MULTIPLY"] == 1
    fused = report["fusion"]
    assert fused["available"]
    assert sum(fused["types"].values()) == len(fused["layers"]) < sum(report["parsed_layers"].values())
    assert {name for layer in fused["layers"] for name in layer["nodes"]} >= {"score", "commit", "embed"}
    assert report["bytes"] == (tmp_path / "verify.plan").stat().st_size > 10_000
    assert report["builder"] == f"tensorrt_rtx {tensorrt_rtx.__version__}"
    assert 0 < report["seconds"] < 60
    assert report["peak_memory_bytes"] > 50e6
    assert {path.name for path in tmp_path.iterdir()} == {"verify.engine.onnx", "target.weights", "verify.plan"}
    assert capfd.readouterr() == ("", "")


def heavy(model: onnx.ModelProto, first: str = "hidden", width: int = 2048) -> None:
    """Return a graph of twelve weights, of 16.8 MB by default, the first of which reads the value of that name."""
    generator, wide = np.random.default_rng(0), [(8, width), *[(width, width)] * 12, (width, 8)]
    weights = [generator.standard_normal(shape, np.float32) / 50 for shape in wide]
    names = [f"weight{index}" for index in range(len(weights))]
    model.graph.initializer.extend(map(onnx.numpy_helper.from_array, weights, names))
    values = [first, *(f"value{index}" for index in range(len(weights)))]
    insert(model, "score", [helper.make_node("MatMul", [x, w], [y], y)
                            for (x, y), w in zip(pairwise(values), names, strict=True)])  # fmt: skip


def test_what_is_said_of_the_memory_before_the_build(tmp_path, monkeypatch):
    """Compare the minimum with the memory that the builder holds, and its weights with those of the file."""
    held, read = [0], process.read_memory
    monkeypatch.setattr(process, "read_memory", lambda pid: held.append(read(pid).own) or read(pid))
    tiny = tiny_graphs.write(tmp_path, change=heavy)
    report = build(tiny, tmp_path / "verify.plan")
    weights = (tmp_path / tiny_graphs.WEIGHTS).stat().st_size
    assert weights == pytest.approx(201.5e6, rel=1e-3)
    assert report["weight_bytes"] == pytest.approx(weights, rel=1e-3)
    layers = sum(report["parsed_layers"].values())
    assert BuilderMemory(weights).least < max(held) < 2 * BuilderMemory(weights, layers).usual
    with pytest.raises(EngineError, match=r"verify.*: for 0.201 GB of weights the builder holds at least 0.237 GB"):
        build(tiny, tmp_path / "none.plan", limits=replace(LIMITS, memory=200e6))
    assert not (tmp_path / "none.plan").exists()


def test_the_weights_of_two_graphs_are_stored_once(tmp_path):
    """Share weights between different graphs, as `verify` and a fused `step` do."""

    def more(model: onnx.ModelProto) -> None:
        plant("Tanh")(model)
        heavy(model, "found", width=512)

    changes, folder = {"verify": partial(heavy, width=512), "step": more}, tmp_path / "out"
    folder.mkdir()
    files = {name: f"{name}.engine" for name in changes}
    entry = EngineEntry("rtx", "tensorrt_rtx", "cuda", files, {"target": "float32"}, ())
    for name, change in changes.items():
        build(tiny_graphs.write(tmp_path / name, change=change), folder / files[name])
    whole = {name: (folder / file).read_bytes() for name, file in files.items()}
    stored = store_weights_once(entry, folder)
    assert stored.files == {"verify": "verify.engine.patch", "step": "step.engine"}
    assert {name: read_delta(folder / file) for name, file in stored.files.items()} == whole
    assert sorted(path.name for path in folder.iterdir()) == ["step.engine", "verify.engine.patch"]
    assert (folder / "verify.engine.patch").stat().st_size < 0.02 * len(whole["verify"])


def attend(model: onnx.ModelProto) -> None:
    """Let every token attend to all of them, in heads of an unusual size."""
    shape = onnx.numpy_helper.from_array(np.array([1, 1, -1, 8]), "heads")
    back = onnx.numpy_helper.from_array(np.array([1, -1, 8]), "flat")
    model.graph.initializer.extend([shape, back])
    nodes = [
        helper.make_node("Reshape", ["hidden", "heads"], ["queries"], "queries"),
        helper.make_node("Tanh", ["queries"], ["keys_of_all"], "keys_of_all"),
        helper.make_node("Softplus", ["queries"], ["values_of_all"], "values_of_all"),
        helper.make_node("Attention", ["queries", "keys_of_all", "values_of_all"], ["context"], "attend"),
        helper.make_node("Reshape", ["context", "flat"], ["attended"], "attended"),
    ]
    insert(model, "score", nodes)


def test_attention_builds_in_float32_because_it_may_be_decomposed(tmp_path):
    tiny = tiny_graphs.write(tmp_path, change=attend)
    assert build(tiny, tmp_path / "verify.plan")["parsed_layers"]["ATTENTION_INPUT"] == 1
    whole = replace(tiny.settings(), decomposable_attention=False)
    with pytest.raises(EngineError, match=r"the builder refused the graph: .*Attention operation was not supported"):
        process.build(tiny.onnx, tiny.graph, whole, tmp_path / "whole.plan", LIMITS)


@pytest.mark.parametrize(("node_type", "domain"), [("NonZero", {}), ("Attend", {"domain": "com.example"})])
def test_an_operator_that_the_parser_does_not_know(tmp_path, node_type, domain):
    error = refusal(tmp_path, plant(node_type, **domain))
    assert str(error).startswith(
        "graph 'verify' (tensorrt_rtx, compute capability 8.9, target float32): "
        f"the parser refused the graph at node 'planted' ({node_type}): "
    )
    assert "\n  the builder's last messages:\n" in str(error)
    assert "[ERROR]" in str(error)
    assert error.hint == "choose another backend for this engine, or what keeps this operator out of the graph"


@pytest.mark.parametrize(
    ("dtype", "where", "reason"), [("bfloat16", "", "b16"), ("float32", " at node 'score'", "FP32 GEMM")]
)
def test_a_precision_that_the_capability_has_not(tmp_path, dtype, where, reason):
    error = refusal(tmp_path, dtype=dtype, capability="7.5")
    assert str(error).startswith(
        f"graph 'verify' (tensorrt_rtx, compute capability 7.5, target {dtype}): "
        f"the builder refused the graph{where}: IBuilder::build"
    )
    assert reason in str(error)
    assert error.hint == "change the engine's precision or compute_capability"


def test_a_capability_that_nobody_builds_for(tmp_path):
    error = refusal(tmp_path, capability="9.0")
    assert "received compute capability 9.0, expected one that tensorrt_rtx" in str(error)
    assert "builds for: 7.5, 8.0, 8.6, 8.9, 12.0, 12.1" in str(error)
    assert error.hint == "set the engine's compute_capability to that of the GPU that will run it"


def test_a_file_that_is_no_graph(tmp_path):
    def no_graph(tiny: Tiny) -> Tiny:
        tiny.onnx.write_bytes(b"no graph")
        return tiny

    assert "the parser refused the graph at the file: Assertion failed" in str(refusal(tmp_path, prepare=no_graph))


def with_graph_of(dtype: str):
    return lambda tiny: Tiny(tiny_graphs.contract_graph(dtype), tiny.onnx)


def test_a_dtype_that_is_not_the_contracts(tmp_path):
    error = refusal(tmp_path, prepare=with_graph_of("float16"))
    assert (
        "input 'target.key.0' of the parsed network is float32 [1, 2, 32, 4], the contract says float16 [1, 2, 32, 4]"
        in str(error)
    )
    assert error.hint == (
        "the lowering and the contract disagree: report the recipe, with the graphs of `build --dump-graphs`"
    )


def test_an_output_that_the_contract_has_not(tmp_path):
    def change(model: onnx.ModelProto) -> None:
        model.graph.output.append(helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, "window", 64]))

    error = refusal(tmp_path, change)
    assert "output 'logits' of the parsed network is float32 [1, -1, 64], the contract says absent" in str(error)


def by_identity(model: onnx.ModelProto) -> None:
    node(model, "commit").output[0] = "updated"
    model.graph.node.append(helper.make_node("Identity", ["updated"], ["target.key.0.out"], "copy"))


def by_scatter(model: onnx.ModelProto) -> None:
    index = [each.name for each in model.graph.node].index("commit")
    zeros = helper.make_node("CastLike", ["target.key.0", "target.key.0"], ["target.key.0.out"], "copy")
    model.graph.node.remove(model.graph.node[index])
    model.graph.node.insert(index, zeros)


@pytest.mark.parametrize(("change", "layer"), [(by_identity, "IDENTITY"), (by_scatter, "CAST")])
def test_a_cache_that_is_not_updated_in_place(tmp_path, change, layer):
    error = refusal(tmp_path, change)
    assert (
        "output 'target.key.0.out' must update input 'target.key.0' in place, by one KV cache update: "
        f"it comes from a layer of type {layer}"
    ) in str(error)
    assert "one TensorScatter (rank 4, axis 2, a float type)" in str(error.hint)
