"""What a build takes of memory, known before it begins, and the limit that it is held against."""

from types import SimpleNamespace

import pytest

from speccompile.compiler.engines import Limits, tensorrt
from speccompile.compiler.engines.memory_estimate import BuilderMemory, demand_of
from speccompile.errors import EngineError
from speccompile.machine import system
from speccompile.machine.system import MemoryLimit
from tests.light.test_engine_network import GRAPH, Layer, Network, tensor, update
from tests.light.test_engine_settings import settings

RTX = "tensorrt_rtx"

MEASURED = [
    # weights in bytes, parsed layers, the builder's peak in bytes: measured, see the docstring of `demand`
    (117e6, 2146, 0.493e9),
    (705e6, 5730, 1.580e9),
    (2.472e9, 3938, 4.119e9),
    (6.426e9, 6610, 10.694e9),
    (187e6, 3212, 0.655e9),
    (430e6, 9867, 1.419e9),
    (5.17e9, 7972, 10.022e9),
]


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    monkeypatch.delenv("SPECCOMPILE_BUILDER_MEMORY_GB", raising=False)


def constant(dtype: str, *shape: int) -> Layer:
    return Layer("CONSTANT", [], [tensor("weight", dtype, *shape)])


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("FLOAT", 60), ("HALF", 30), ("BF16", 30), ("INT8", 15), ("FP8", 15), ("INT4", 8), ("FP4", 8), ("INT64", 120)],
)
def test_weights_are_counted_in_the_bits_that_they_have(dtype, size):
    scalar = constant("INT32")
    assert demand_of(Network(update("key"), constant(dtype, 3, 5), scalar)) == BuilderMemory(size + 4, 3)


@pytest.mark.parametrize(("weights", "layers", "peak"), MEASURED)
def test_what_was_measured_lies_between(weights, layers, peak):
    demand = BuilderMemory(weights, layers)
    assert demand.least < peak
    assert demand.usual == pytest.approx(peak, rel=0.16)


def test_a_build_that_cannot_fit_is_refused_with_the_figures(monkeypatch):
    demand = BuilderMemory(6.4e9, 6600)
    demand.check(RTX, Limits(60, 6.5e9))
    demand.check("tensorrt", Limits(60, 1e9))
    monkeypatch.setenv("SPECCOMPILE_BUILDER_MEMORY_GB", "6")
    with pytest.raises(EngineError) as caught:
        demand.check(RTX, Limits())
    assert str(caught.value) == (
        "for 6.4 GB of weights the builder holds at least 6.44 GB of memory and as a rule 10.8 GB, and it may hold "
        "6 GB ($SPECCOMPILE_BUILDER_MEMORY_GB)"
    )
    assert caught.value.hint.startswith(
        "6 GB are enough for a model of about 1.8 B parameters in float16, 3 B parameters in int8, 4.6 B parameters "
        "in int4: choose a precision with fewer bits, give the builder more with $SPECCOMPILE_BUILDER_MEMORY_GB, or "
        "set the engine's `defer: true` and run `speccompile finish`"
    )


def test_a_limit_without_any_room_names_no_negative_model():
    with pytest.raises(EngineError) as caught:
        BuilderMemory(1e9).check(RTX, Limits(60, 1e6))
    assert "a model of about 0 B parameters in float16" in caught.value.hint


def test_a_control_group_limits_the_builder(monkeypatch):
    machine = MemoryLimit("this machine's memory and swap", "memory", 9 << 40, "")
    group = MemoryLimit("the limit of the control group /box", "memory", 4_000_000_000, "")
    mapped = MemoryLimit("`ulimit -v`", "address space", 1_000_000, "")
    monkeypatch.setattr(system, "memory_limits", lambda: [machine, mapped, group])
    assert Limits().memory == pytest.approx(3.6e9)
    with pytest.raises(EngineError, match=r"it may hold 3.6 GB \(nine tenths of the limit of the control group /box\)"):
        BuilderMemory(3.7e9).check(RTX, Limits())
    monkeypatch.setattr(system, "memory_limits", lambda: [machine])
    assert Limits().memory == pytest.approx(system.physical_memory() * 0.9)
    assert Limits().memory_source == "nine tenths of this machine's memory"


def test_the_builder_refuses_before_it_begins(monkeypatch, tmp_path):
    """Refuse behind the parser: the builder is not called, and no engine's file is opened."""
    network = Network(update("key"), constant("HALF", 1000, 1000, 2000))
    builder = SimpleNamespace(create_network=lambda flags: network)
    trt = SimpleNamespace(Builder=lambda logger: builder, NetworkDefinitionCreationFlag=SimpleNamespace())
    monkeypatch.setattr(tensorrt, "make_logger", lambda trt: SimpleNamespace())
    monkeypatch.setattr(tensorrt, "_parse", lambda *_: None)
    monkeypatch.setattr(tensorrt, "_decompose_attention", lambda *_: pytest.fail("the build began"))
    given = settings(tokens=4, prefill_chunk=16)
    with pytest.raises(EngineError, match=r"for 4 GB of weights the builder holds at least 4\.04 GB of memory"):
        tensorrt.build_engine(trt, tmp_path / "verify.onnx", GRAPH, given, tmp_path / "plan", Limits(60, 3e9))
    assert list(tmp_path.iterdir()) == []
