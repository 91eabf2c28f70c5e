"""Engines on a GPU in C++, without one: what crosses and when, and what is said of a lack.

That a bundle gives the same tokens over a device's memory is in tests/compile/test_native_device.py.
"""

import subprocess

import pytest

from speccompile.bundle import EngineEntry, open_bundle
from speccompile.errors import EngineError
from speccompile.runtime.devices.engines import choose
from speccompile.runtime.devices.onnxruntime_device import PROVIDERS
from tests.light.bundle_example import verify_graph, write_bundle

ENGINE_ERROR = 11
"""Error(Kind::kEngine), as native/errors.h numbers it."""

VARIABLE = "SPECCOMPILE_NV_TENSORRT_RTX"


@pytest.fixture
def program(native_build):
    def run(*words, **environment):
        command = [native_build / "test_device", *words]
        done = subprocess.run(command, capture_output=True, text=True, env={"LD_LIBRARY_PATH": "", **environment})
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


@pytest.fixture
def bundle(tmp_path):
    """Return a bundle of two engines for a GPU. None of its graphs can be opened."""
    graphs, files = (verify_graph(),), {"verify": "graphs/verify.onnx"}
    engines = tuple(
        EngineEntry(provider, "onnxruntime", provider, files, {"target": "float16"}, graphs) for provider in PROVIDERS
    )
    return write_bundle(tmp_path / "bundle", engines=engines)


def test_buffers_copies_and_cuda_graphs(program):
    program()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("task", ["choose", "open"])
def test_an_engine_whose_provider_is_missing(program, bundle, onnxruntime_library, provider, task):
    try:
        choose(open_bundle(bundle).manifest, provider)
    except EngineError as error:
        expected = error
    else:
        pytest.skip("this machine runs it")
    if "has no" not in str(expected):
        pytest.skip("this machine has the provider")
    kind, message, hint = program(task, onnxruntime_library, bundle, provider)
    assert int(kind) == ENGINE_ERROR
    assert message == str(expected).removeprefix("" if task == "choose" else f"engine {provider!r} cannot run here: ")
    assert hint.startswith(expected.hint)


def test_a_plugin_that_cannot_be_loaded(program, bundle, onnxruntime_library, tmp_path):
    (tmp_path / "plugin.so").write_text("no library")
    named = {VARIABLE: str(tmp_path / "plugin.so")}
    kind, message, hint = program("open", onnxruntime_library, bundle, "nv_tensorrt_rtx", **named)
    assert int(kind) == ENGINE_ERROR
    assert message.startswith("ONNX Runtime cannot load NvTensorRTRTXExecutionProvider: ")
    assert "plugin.so" in message
    assert "`nvidia-smi` shows the driver" in hint


def test_a_machine_without_a_gpu(program, bundle, onnxruntime_library, tmp_path):
    """Ask for the GPU where there is a plugin."""
    (tmp_path / "plugin.so").write_text("no library")
    lines = program("choose", onnxruntime_library, bundle, "nv_tensorrt_rtx", **{VARIABLE: str(tmp_path / "plugin.so")})
    if "cannot load" in lines[1]:
        pytest.skip("this machine has a GPU")
    kind, message, hint = lines
    assert int(kind) == ENGINE_ERROR
    reasons = ("CUDA cannot find a GPU: ", "CUDA's runtime library is not installed: ")
    assert message.startswith(tuple(f"engine 'nv_tensorrt_rtx' cannot run here: {reason}" for reason in reasons))
    assert "NVIDIA driver" in hint or "nvidia-smi" in hint or "libcudart" in hint
