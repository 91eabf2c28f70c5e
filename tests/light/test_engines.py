"""Which engine of a bundle runs on which machine, and what is said of those that do not."""

import logging
import sys
from dataclasses import replace

import pytest

from speccompile.bundle import BundleWriter, EngineEntry
from speccompile.compiler.engines import store_weights_once
from speccompile.errors import EngineError, UsageError
from speccompile.machine.system import available_cores
from speccompile.runtime import Bundle
from speccompile.runtime.devices import engines, onnxruntime_device, tensorrt_program
from speccompile.runtime.devices.engine import process_memory
from speccompile.runtime.devices.engines import choose, open_engine
from speccompile.runtime.devices.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.devices.onnxruntime_device import OnnxRuntimeDeviceEngine
from speccompile.runtime.devices.tensorrt import TensorRTEngine
from tests.light.bundle_example import cpu_entry
from tests.light.fake_bundle import toy_manifest
from tests.light.fake_cuda import Error, FakeCuda
from tests.light.fake_tensorrt import FakeTensorRT, device_manifest, engine_entry, write_plans
from tests.light.toy_models import autoregressive

FINISH = "run `speccompile finish` on the bundle, on the machine that is to run it"


@pytest.fixture
def cuda(monkeypatch):
    """Return a machine with a GPU of compute capability 8.9."""
    machine = FakeCuda()
    monkeypatch.setattr(engines, "open_device", machine.open)
    monkeypatch.setattr(tensorrt_program, "load", lambda backend: FakeTensorRT(machine, device_manifest()))
    return machine


@pytest.fixture
def no_gpu(cuda):
    cuda.failures["cudaGetDeviceCount"] = Error.cudaErrorNoDevice


def manifest_of(*entries):
    return replace(toy_manifest(), engines=entries)


def rtx(name, capability="8.9", **changes):
    return engine_entry(name, {}, (), compute_capability=capability, **changes)


CPU = cpu_entry((), {}, "cpu")


def test_the_first_that_can_run_is_taken(cuda, caplog):
    assert choose(manifest_of(rtx("rtx"), CPU), None).name == "rtx"
    assert choose(manifest_of(CPU, rtx("rtx")), None).name == "cpu"
    assert choose(manifest_of(rtx("any", None), CPU), None).name == "any"
    assert caplog.records == []


def test_those_that_cannot_run_are_passed_over_with_a_warning(cuda, caplog):
    entries = (rtx("later", deferred="the recipe says so"), rtx("old", "8.6"), rtx("ours"), CPU)
    with caplog.at_level(logging.WARNING, "speccompile"):
        assert choose(manifest_of(*entries), None).name == "ours"
    assert [record.getMessage() for record in caplog.records] == [
        "skipping engine later for ours: it is not built yet: the recipe says so",
        "skipping engine old for ours: it is for compute capability 8.6, Fake GPU has 8.9",
    ]


def test_without_a_gpu_the_processor_is_taken(no_gpu, caplog):
    with caplog.at_level(logging.WARNING, "speccompile"):
        assert choose(manifest_of(rtx("edge"), CPU), None).name == "cpu"
    (record,) = caplog.records
    assert record.getMessage().startswith("skipping engine edge for cpu: CUDA cannot find a GPU: no CUDA-capable")


def test_no_engine_can_run(no_gpu):
    with pytest.raises(
        EngineError, match=r"no engine of the bundle can run here: edge: CUDA cannot find .*; other: CUDA"
    ) as caught:
        choose(manifest_of(rtx("edge"), rtx("other", "8.6")), None)
    assert caught.value.hint == "`speccompile doctor` shows what this machine can run"
    with pytest.raises(EngineError, match=r"edge: CUDA cannot .*; later: it is not built yet: no TensorRT") as caught:
        choose(manifest_of(rtx("edge"), rtx("later", deferred="no TensorRT")), None)
    assert caught.value.hint == FINISH


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        (rtx("this", deferred="no GPU"), "it is not built yet: no GPU", FINISH),
        (rtx("this", "8.6"), "it is for compute capability 8.6, Fake GPU has 8.9", "add this capability to the recipe"),
        (rtx("this", backend="xyzzy"), "this runtime has no backend 'xyzzy' on 'cuda'", "--engine NAME (engine=NAME)"),
        (replace(CPU, name="this", provider="tpu"), "no backend 'onnxruntime' on 'tpu'", "--engine NAME (engine=NAME)"),
    ],
)  # fmt: skip
def test_a_named_engine_that_cannot_run(cuda, entry, message, hint):
    with pytest.raises(EngineError, match=f"engine 'this' cannot run here: .*{message}") as caught:
        choose(manifest_of(CPU, entry), "this")
    assert hint in caught.value.hint


def test_a_named_engine_that_is_not_in_the_bundle():
    with pytest.raises(UsageError, match="the bundle has no engine 'xyzzy'") as caught:
        choose(manifest_of(CPU, rtx("edge")), "xyzzy")
    assert caught.value.hint == "it has: cpu, edge"


def test_a_library_that_is_not_installed(cuda, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(engines, "open_device", cuda.open)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    tensorrt_program.load.cache_clear()
    with pytest.raises(EngineError, match="engine 'it' cannot run here: the Python module tensorrt cannot") as caught:
        choose(manifest_of(rtx("it", backend="tensorrt")), "it")
    assert caught.value.hint == "pip install tensorrt"


@pytest.mark.parametrize("provider", ["cuda", "nv_tensorrt_rtx"])
def test_onnxruntime_on_a_gpu_needs_its_provider_and_the_gpu(cuda, provider, monkeypatch):
    entry = EngineEntry("gpu", "onnxruntime", provider, {}, {}, ())
    monkeypatch.setattr(onnxruntime_device, "find_spec", lambda name: None)
    monkeypatch.setattr(onnxruntime_device.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EngineError, match=r"engine 'gpu' cannot run here: ONNX Runtime .* has no "):
        choose(manifest_of(entry), "gpu")
    name = onnxruntime_device.PROVIDERS[provider].name
    monkeypatch.setattr(onnxruntime_device.ort, "get_available_providers", lambda: [name])
    assert choose(manifest_of(entry), "gpu") is entry
    cuda.failures["cudaGetDeviceCount"] = Error.cudaErrorNoDevice
    with pytest.raises(EngineError, match="engine 'gpu' cannot run here: CUDA cannot find a GPU"):
        choose(manifest_of(entry), "gpu")


def test_every_engine_is_opened_by_its_own_class(cuda, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(onnxruntime_device, "check_provider", lambda name: None)
    gpu = EngineEntry("gpu", "onnxruntime", "cuda", {}, {}, ())
    for entry, kind in ((CPU, OnnxRuntimeEngine), (gpu, OnnxRuntimeDeviceEngine), (rtx("rtx"), TensorRTEngine)):
        engine = open_engine(tmp_path, entry)
        assert isinstance(engine, kind)
        assert engine.threads == (None if kind is TensorRTEngine else available_cores())
        assert engine.memory().keys() == process_memory().keys()
    assert open_engine(tmp_path, CPU, threads=3).threads == open_engine(tmp_path, gpu, threads=3).threads == 3


def test_a_bundle_runs_on_the_engine_that_is_chosen(cuda, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    manifest = device_manifest()
    (entry,) = manifest.engines
    built = replace(
        entry.build, deferred="the recipe says so", sources=entry.files, settings=dict.fromkeys(entry.files)
    )
    later = replace(entry, name="later", files={}, build=built)
    folder = tmp_path / "toy"
    with BundleWriter(folder) as writer:
        write_plans(writer.folder, entry)
        writer.finish(replace(manifest, tokenizer=False, engines=(later, entry)), {}, {})
    bundle = Bundle.open(folder)
    assert bundle.engine_name == "rtx"
    assert bundle.load_seconds > 0
    assert bundle.generate([3, 1, 4], max_new_tokens=20).token_ids == autoregressive([3, 1, 4], 20)
    with pytest.raises(EngineError, match="engine 'later' cannot run here: it is not built yet"):
        Bundle.open(folder, engine="later")


def test_an_engine_that_is_stored_as_a_patch(cuda, tmp_path, monkeypatch):
    """`verify` beside the fused `step` with which it has most bytes in common."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    manifest = device_manifest(fused=True)
    (entry,) = manifest.engines
    monkeypatch.setattr(tensorrt_program, "load", lambda backend: FakeTensorRT(cuda, manifest))
    with BundleWriter(tmp_path / "toy") as writer:
        write_plans(writer.folder, entry)
        for file in entry.files.values():
            with (writer.folder / file).open("a") as plan:
                plan.write("".join(f"\n{' ' * number}" for number in range(1000)))  # the weights of both
        entry = store_weights_once(entry, writer.folder)
        writer.finish(replace(manifest, tokenizer=False, engines=(entry,)), {}, {})
    assert entry.files["verify"] == "engines/verify.engine.patch"
    assert (tmp_path / "toy" / entry.files["verify"]).stat().st_size < 50_000
    bundle = Bundle.open(tmp_path / "toy")
    for options in ({}, {"autoregressive": True}):
        assert bundle.generate([3, 1, 4], max_new_tokens=20, **options).token_ids == autoregressive([3, 1, 4], 20)
