"""ONNX Runtime's engine for GPUs with the processor in the GPU's place: real sessions over a fake GPU's memory."""

import logging
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from speccompile.bundle import EngineEntry
from speccompile.contract import Graph, Tensor
from speccompile.errors import EngineError
from speccompile.runtime.devices import onnxruntime_device
from speccompile.runtime.devices.onnxruntime_device import (
    MAX_CUDA_GRAPHS,
    PROVIDERS,
    OnnxRuntimeDeviceEngine,
    check_provider,
)
from tests.light.fake_cuda import FakeCuda

GRAPH = Graph(
    "verify",
    (
        Tensor("window", "int64", (1, "window"), "window", "io"),
        Tensor("length", "int64", (1,), "length", "io"),
        Tensor("logit_rows", "int64", ("logit_rows",), "logit_rows", "index"),
        Tensor("cache", "float16", (1, 4), "target.cache", "state"),
    ),
    (
        Tensor("path", "int64", (1, "window"), "path", "io"),
        Tensor("logits", "float32", ("logit_rows",), "logits", "optional"),
        Tensor("cache.out", "float16", (1, 4), "target.cache", "state"),
    ),
)
"""path = window + length; logits = logit_rows as float; cache' = cache + 1."""


def write_model(path):
    dtypes = {"int64": TensorProto.INT64, "float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT}
    inputs, outputs = (
        [helper.make_tensor_value_info(t.name, dtypes[t.dtype], t.shape) for t in tensors]
        for tensors in (GRAPH.inputs, GRAPH.outputs)
    )
    one = helper.make_tensor("one", TensorProto.FLOAT16, (), [1.0])
    nodes = [
        helper.make_node("Add", ["window", "length"], ["path"]),
        helper.make_node("Cast", ["logit_rows"], ["logits"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["cache", "one"], ["cache.out"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "verify", inputs, outputs, [one]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    onnx.save(model, path)


@pytest.fixture
def on_processor(monkeypatch):
    """Make the provider `cuda` be the processor, whose memory the fake GPU has."""
    here = replace(PROVIDERS["cuda"], name="CPUExecutionProvider", memory="cpu")
    monkeypatch.setitem(PROVIDERS, "cuda", here)


@pytest.fixture
def entry(tmp_path):
    write_model(tmp_path / "verify.onnx")
    return EngineEntry("gpu", "onnxruntime", "cuda", {"verify": "verify.onnx"}, {"target": "float16"}, (GRAPH,))


@pytest.fixture
def opened(tmp_path, entry, on_processor):
    cuda = FakeCuda()
    return SimpleNamespace(cuda=cuda, engine=OnnxRuntimeDeviceEngine(tmp_path, entry, cuda.open(), threads=1))


@pytest.fixture
def numbers(monkeypatch):
    """Return the numbers of CUDA graphs that ONNX Runtime is told, in order."""
    told = []

    class Recorded(ort.RunOptions):
        def add_run_config_entry(self, key, value):
            told.append((key, value))

    monkeypatch.setattr(ort, "RunOptions", Recorded)
    return told


def run(engine, width, *, optional=()):
    bound = engine.bind("verify", {"window": width, "logit_rows": width}, optional)
    engine.host_view("window", (1, width))[0] = range(width)
    bound()
    return engine.host_view("path", (1, width))[0].tolist()


def test_graphs_run_over_the_devices_memory(opened):
    opened.engine.host_view("length", (1,))[:] = 10
    for width in (3, 1, 3):
        assert run(opened.engine, width) == list(range(10, 10 + width))
    cache = opened.engine.host_view("target.cache", (1, 4))
    assert (cache.tolist(), cache.dtype) == ([[3] * 4], np.float16)
    assert opened.engine.has("verify")
    assert not opened.engine.has("draft")


def test_only_counts_and_tokens_cross(opened):
    run(opened.engine, 3)
    opened.cuda.copies.clear()
    address = opened.engine.address("target.cache")
    run(opened.engine, 3)
    assert sorted(opened.cuda.copies) == [("down", 24), ("up", 8), ("up", 24)]
    run(opened.engine, 3, optional=("logits",))
    assert ("down", 12) in opened.cuda.copies
    assert opened.engine.host_view("logits", (3,)).tolist() == [0, 1, 2]
    assert opened.engine.address("target.cache") == address


def test_shapes_that_come_again_have_a_cuda_graph_of_their_own(opened, numbers):
    for width in (3, 5, 5, 5, 3, 3, 5):
        run(opened.engine, width)
    key = PROVIDERS["cuda"].graph_key
    assert numbers == [(key, number) for number in ("-1", "-1", "1", "1", "-1", "2", "1")]


def test_cuda_graphs_do_not_pile_up(opened, numbers):
    for width in range(1, 20):
        for _ in range(2):
            assert len(run(opened.engine, width)) == width
    assert {int(number) for _, number in numbers} == {-1, *range(1, MAX_CUDA_GRAPHS + 1)}


def test_a_capture_that_fails_is_told_once_and_the_graph_runs_on(opened, monkeypatch, caplog):
    session = opened.engine._session("verify")
    plainly = session._run
    failed = ort.capi.onnxruntime_pybind11_state.Fail("capturing failed\nat some place")

    def refuse(bound, number):
        if number != "-1":
            raise failed
        plainly(bound, number)

    monkeypatch.setattr(session, "_run", refuse)
    with caplog.at_level(logging.WARNING, "speccompile"):
        for _ in range(4):
            assert run(opened.engine, 3) == [0, 1, 2]
    (record,) = caplog.records
    assert record.getMessage() == "verify.onnx: runs without CUDA graphs: capturing failed"


def test_a_graph_that_cannot_run(opened, monkeypatch):
    def refuse(bound, number):
        raise RuntimeError("out of memory\nsomewhere")

    monkeypatch.setattr(opened.engine._session("verify"), "_run", refuse)
    message = r"verify at window \[1, 3\], logit_rows \[3\]: ONNX Runtime cannot run it: out of memory$"
    with pytest.raises(EngineError, match=message):
        run(opened.engine, 3)


def test_a_tensor_that_the_graph_does_not_have(tmp_path, entry, on_processor):
    other = replace(GRAPH, inputs=(replace(GRAPH.inputs[0], name="xyzzy"), *GRAPH.inputs[1:]))
    engine = OnnxRuntimeDeviceEngine(tmp_path, replace(entry, graphs=(other,)), FakeCuda().open())
    with pytest.raises(EngineError, match=r"verify.onnx: ONNX Runtime does not bind xyzzy: .*xyzzy") as caught:
        engine.bind("verify", {"window": 3, "logit_rows": 3})
    assert caught.value.hint == "build the bundle again with this speccompile"


def test_a_session_that_refuses_to_capture_is_opened_without(tmp_path, entry, on_processor, monkeypatch, caplog):
    def open_session(path, provider, threads, *, capture):
        if capture:
            raise EngineError("ONNX Runtime does not take verify.onnx: nodes have not been partitioned")
        return plainly(path, provider, threads, capture=capture)

    plainly = onnxruntime_device._open
    monkeypatch.setattr(onnxruntime_device, "_open", open_session)
    with caplog.at_level(logging.WARNING, "speccompile"):
        engine = OnnxRuntimeDeviceEngine(tmp_path, entry, FakeCuda().open())
        assert run(engine, 3) == run(engine, 3) == [0, 1, 2]
    (record,) = caplog.records
    assert "verify.onnx: runs without CUDA graphs: ONNX Runtime does not take verify.onnx" in record.getMessage()


@pytest.mark.parametrize("capture", [True, False])
def test_cuda_is_asked_for_products_of_whole_float32(tmp_path, monkeypatch, capture):
    asked = []
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)
    monkeypatch.setattr(ort, "InferenceSession", lambda path, options, providers: asked.extend(providers))
    onnxruntime_device._open(tmp_path / "verify.onnx", PROVIDERS["cuda"], 1, capture=capture)
    settings = {"enable_cuda_graph": str(int(capture)), "device_id": "0", "use_tf32": "0"}
    assert asked == [("CUDAExecutionProvider", settings)]


@pytest.mark.parametrize(
    ("provider", "hint"),
    [("cuda", "pip install 'onnxruntime-gpu"), ("nv_tensorrt_rtx", "pip install onnxruntime-ep-nv-tensorrt-rtx")],
)
def test_a_provider_that_is_missing(tmp_path, entry, provider, hint, monkeypatch):
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime_device, "find_spec", lambda name: None)
    message = rf"ONNX Runtime [\d.]+ has no {PROVIDERS[provider].name}, but CPUExecutionProvider"
    with pytest.raises(EngineError, match=message) as caught:
        OnnxRuntimeDeviceEngine(tmp_path, replace(entry, provider=provider), FakeCuda().open())
    assert hint in caught.value.hint


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_cannot_be_loaded_is_no_downgrade(tmp_path, entry, monkeypatch, capsys):
    """ONNX Runtime takes the processor instead, and says so only in its log."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "preload_dlls", lambda: print("it lacks a library"))
    check_provider("cuda")
    if "CUDAExecutionProvider" in ort.InferenceSession(tmp_path / "verify.onnx").get_providers():
        pytest.skip("this machine has the provider")
    message = r"ONNX Runtime [\d.]+ could not load CUDAExecutionProvider and took CPUExecutionProvider for verify.onnx"
    with pytest.raises(EngineError, match=message) as caught:
        OnnxRuntimeDeviceEngine(tmp_path, entry, FakeCuda().open())
    captured = capsys.readouterr()
    assert (captured.out, "it lacks a library" in captured.err) == ("", True)
    assert "often CUDA or cuDNN: pip uninstall onnxruntime, then pip install" in caught.value.hint


def test_nodes_that_are_left_to_the_processor_are_told(caplog):
    def part(name, *ops):
        return SimpleNamespace(ep_name=name, get_nodes=lambda: [SimpleNamespace(op_type=op) for op in ops])

    parts = [part("CUDAExecutionProvider", "MatMul"), part("CPUExecutionProvider", "Shape", "Add", "Shape")]
    session = SimpleNamespace(get_provider_graph_assignment_info=lambda: parts)
    with caplog.at_level(logging.WARNING, "speccompile"):
        onnxruntime_device._warn_fallback_nodes(session, PROVIDERS["cuda"], "verify.onnx")
        onnxruntime_device._warn_fallback_nodes(
            SimpleNamespace(get_provider_graph_assignment_info=lambda: parts[:1]), PROVIDERS["cuda"], "verify.onnx"
        )
    (record,) = caplog.records
    assert record.getMessage() == "verify.onnx: ONNX Runtime leaves nodes to the CPU: 1 Add, 2 Shape"


@pytest.fixture
def plugin(monkeypatch):
    """Yield the package of the plugin, and what ONNX Runtime makes of it."""
    provider = PROVIDERS["nv_tensorrt_rtx"]
    module = ModuleType(provider.plugin)
    module.get_ep_name, module.get_library_path = (lambda: provider.name), (lambda: "no-such-library.so")
    monkeypatch.setitem(sys.modules, provider.plugin, module)
    onnxruntime_device._plugin_devices.cache_clear()
    yield module
    onnxruntime_device._plugin_devices.cache_clear()


def test_a_plugin_that_cannot_be_loaded(tmp_path, entry, plugin, monkeypatch):
    monkeypatch.setattr(onnxruntime_device, "find_spec", lambda name: name == plugin.__name__)
    with pytest.raises(
        EngineError, match=r"ONNX Runtime cannot load NvTensorRTRTXExecutionProvider: .*no-such-library"
    ):
        OnnxRuntimeDeviceEngine(tmp_path, replace(entry, provider="nv_tensorrt_rtx"), FakeCuda().open())


def test_a_plugin_without_a_gpu_for_it(tmp_path, entry, plugin, monkeypatch):
    monkeypatch.setattr(onnxruntime_device, "find_spec", lambda name: name == plugin.__name__)
    monkeypatch.setattr(ort, "register_execution_provider_library", lambda name, path: None)
    with pytest.raises(EngineError, match="NvTensorRTRTXExecutionProvider finds no GPU that it supports") as caught:
        OnnxRuntimeDeviceEngine(tmp_path, replace(entry, provider="nv_tensorrt_rtx"), FakeCuda().open())
    assert caught.value.hint == "choose another engine of the bundle: --engine NAME (engine=NAME)"
