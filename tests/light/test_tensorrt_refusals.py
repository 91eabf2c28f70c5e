"""What the TensorRT engine refuses, and in which words: engines, shapes, a library that says no or is missing."""

import sys

import pytest

from speccompile.contract import Graph
from speccompile.errors import EngineError
from speccompile.runtime.devices.tensorrt_program import Program, load
from tests.light import fake_tensorrt
from tests.light.fake_cuda import FakeCuda
from tests.light.fake_machine import PROMPT, generate, make_machine
from tests.light.fake_tensorrt import describe
from tests.light.toy_models import autoregressive


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return make_machine(tmp_path, monkeypatch)


def test_the_library_does_not_take_an_engine(machine):
    message = (
        r"tensorrt_rtx 1.7 does not take verify.engine on Fake GPU \(compute capability 8.9\): for another version"
    )
    with pytest.raises(EngineError, match=message) as caught:
        machine(trt={"refuses": "for another version"})
    assert "`speccompile inspect` shows" in caught.value.hint


@pytest.mark.parametrize(
    ("tensor", "change", "message"),
    [
        ("window", {"dtype": "INT32"}, r"window is INPUT int32 \[1, -1\] on the DEVICE, by the contract INPUT int64"),
        ("window", {"location": "HOST"}, r"window is INPUT int64 \[1, -1\] on the HOST, by the contract .* DEVICE"),
        ("path", {"shape": [1, 6]}, r"path is OUTPUT int64 \[1, 6\] on the DEVICE, by the contract .* \[1, -1\]"),
        ("n_path", {"mode": "INPUT"}, "n_path is INPUT int64 .*, by the contract OUTPUT int64"),
        ("target__rows__out", {"aliased": None}, "target.rows.out updates nothing in place, by the contract target"),
        ("target__rows__out", {"aliased": "length"}, "target.rows.out updates length in place, by the contract target"),
    ],
)  # fmt: skip
def test_an_engine_that_is_not_what_the_contract_says(machine, tensor, change, message):
    with pytest.raises(EngineError, match=f"verify.engine: {message}") as caught:
        machine(plans={"verify": lambda graph: describe(graph, **{tensor: change})})
    assert caught.value.hint == "build the bundle again with this speccompile"


def test_an_engine_with_other_tensors(machine):
    def without_logits(graph):
        described = describe(graph)
        del described["tensors"]["logits"]
        return described

    with pytest.raises(EngineError, match=r"verify.engine: its tensors are \[.*\], the contract's \[.*'logits'.*\]"):
        machine(plans={"verify": without_logits})


def test_shapes_outside_the_range_of_the_engine(machine):
    opened = machine(trt={"largest": 8}, prefill_chunk=16)
    assert generate(opened) == autoregressive(PROMPT, 30)
    message = r"verify at window \[1, 12\], logit_rows \[1\]: window is outside what the engine was built for"
    with pytest.raises(EngineError, match=message) as caught:
        opened.bundle.generate([7] * 12)
    assert caught.value.hint == "`speccompile inspect` shows the smallest and the largest shapes"


@pytest.mark.parametrize("rtx", [True, False])
def test_a_context_that_refused_shapes_is_pointed_anew(machine, rtx):
    opened = machine(rtx=rtx, trt={"largest": 8}, prefill_chunk=16)
    for _ in range(2):
        generation = opened.bundle.generate([7], max_new_tokens=20, autoregressive=True)
        assert generation.token_ids == autoregressive([7], 20)
        with pytest.raises(EngineError, match="window is outside what the engine was built for"):
            opened.bundle.generate([7] * 12, autoregressive=True)


def test_an_address_that_the_library_does_not_take(machine, monkeypatch):
    opened = machine()
    monkeypatch.setattr("tests.light.fake_tensorrt.Context.set_tensor_address", lambda *_: False)
    with pytest.raises(EngineError, match=r"verify at .*: window takes no address: it does not say why"):
        generate(opened)


def test_an_output_of_another_size_is_refused_before_it_is_written(machine, monkeypatch):
    opened = machine()
    monkeypatch.setattr("tests.light.fake_tensorrt.Context.get_tensor_shape", lambda *_: (1, 99))
    message = r"verify at .*: the engine gives path the shape \[1, 99\], the contract \[1, 6\]"
    with pytest.raises(EngineError, match=message):
        generate(opened)


def test_a_library_that_cannot_make_a_context_or_run(machine):
    with pytest.raises(EngineError, match="tensorrt_rtx cannot make an execution context for verify: it does not say"):
        machine(trt={"refuses_context": True})
    opened = machine(trt={"refuses_to_run": True})
    with pytest.raises(EngineError, match=r"verify at window \[1, 5\], .*: the library refuses to run it: it does not"):
        generate(opened)


@pytest.mark.parametrize(
    ("backend", "package"), [("tensorrt_rtx", "'speccompile[tensorrt-rtx]'"), ("tensorrt", "tensorrt")]
)
def test_a_module_that_is_missing(backend, package, monkeypatch):
    load.cache_clear()
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(EngineError, match=f"the Python module {backend} cannot be imported: ") as caught:
        load(backend)
    assert caught.value.hint == f"pip install {package}"
    load.cache_clear()


def test_the_real_module_has_what_the_fake_has():
    trt = pytest.importorskip("tensorrt_rtx")
    pairs = {
        fake_tensorrt.Runtime: trt.Runtime,
        fake_tensorrt.CudaEngine: trt.ICudaEngine,
        fake_tensorrt.Context: trt.IExecutionContext,
        fake_tensorrt.KernelStore: trt.IRuntimeCache,
        fake_tensorrt.Logger: trt.ILogger,
    }
    for fake, real in pairs.items():
        assert {name for name in dir(fake) if not name.startswith("_")} <= set(dir(real))
    assert {"cuda_graph_strategy", "create_runtime_cache", "set_runtime_cache"} <= set(dir(trt.IRuntimeConfig))
    assert {each.name for each in fake_tensorrt.Strategy} <= trt.CudaGraphStrategy.__members__.keys()
    assert set(fake_tensorrt.NAMES.values()) <= trt.DataType.__members__.keys()
    assert "DEVICE" in trt.TensorLocation.__members__
    assert {"INPUT", "OUTPUT"} <= trt.TensorIOMode.__members__.keys()


def test_the_real_library_does_not_take_what_is_no_engine(tmp_path):
    trt = pytest.importorskip("tensorrt_rtx")
    plan = tmp_path / "verify.engine"
    plan.write_bytes(b"no engine")
    with pytest.raises(EngineError, match=f"tensorrt_rtx {trt.__version__} does not take verify.engine on Fake GPU"):
        Program(trt, plan, Graph("verify", (), ()), FakeCuda().open())
