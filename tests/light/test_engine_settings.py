"""What goes into a build and what comes out of it when it fails, without a builder."""

import ctypes
import errno
import subprocess
import sys

import pytest

from speccompile.compiler.engines import Limits, Settings, failures, flavour, make_settings
from speccompile.compiler.engines.failures import BuilderExit, to_engine_error
from speccompile.compiler.engines.flavour import Gpu
from speccompile.compiler.engines.memory import Memory, read_memory
from speccompile.compiler.engines.messages import fused_layers, last_phase
from speccompile.contract import Graph, Tensor
from speccompile.errors import EngineError, UsageError
from speccompile.machine.system import MemoryLimit, physical_memory


def graph() -> Graph:
    inputs = (
        Tensor("window", "int64", (2, "window"), "window", "io"),
        Tensor("path", "int64", (2, "window+1"), "path", "io"),
        Tensor("length", "int64", (2,), "length", "io"),
        Tensor("logit_rows", "int64", ("logit_rows",), "logit_rows", "index"),
        Tensor("catch_up", "int64", ("catch_up",), "catch_up", "index"),
        Tensor("history", "int64", (2, "history"), "history", "io"),
        Tensor("media", "float32", ("media", 8), "media", "io"),
    )
    return Graph("step", inputs, ())


def settings(**options: int) -> Settings:
    words = {"target": "float16", "drafter": "float32"}
    options = {"catch_up": 2, "max_length": 64} | options
    return make_settings(graph(), backend="tensorrt_rtx", compute_capability="8.9", precision=words, **options)


@pytest.mark.parametrize(
    ("tokens", "chunk", "window", "path", "logit_rows", "catch_up"),
    [
        (4, 128, (1, 5, 128), (2, 6, 129), (1, 5, 128), (2, 2, 129)),
        (8, 4, (1, 9, 9), (2, 10, 10), (1, 9, 9), (2, 2, 10)),
        (0, 16, (1, 1, 16), (2, 2, 17), (1, 1, 16), (2, 2, 17)),
    ],
)
def test_the_profile_spans_decoding_and_prefill(tokens, chunk, window, path, logit_rows, catch_up):
    assert settings(tokens=tokens, prefill_chunk=chunk).profile == {
        "window": tuple((2, size) for size in window),
        "path": tuple((2, size) for size in path),
        "logit_rows": tuple((size,) for size in logit_rows),
        "catch_up": tuple((size,) for size in catch_up),
        "history": ((2, 1), (2, 1), (2, 64)),
        "media": ((1, 8), (1, 8), (2 * (window[2] + 1), 8)),
    }


@pytest.mark.parametrize(("catch_up", "usual"), [(0, 2), (2, 2), (5, 5)])
def test_the_catch_up_of_decoding_is_the_drafters(catch_up, usual):
    profile = settings(tokens=10, prefill_chunk=4, catch_up=catch_up).profile
    assert profile["catch_up"] == ((2,), (usual,), (12,))


def test_a_graph_of_fixed_shapes_needs_no_profile():
    fixed = Graph("draft", graph().inputs[2:3], ())
    options = {"backend": "tensorrt", "compute_capability": None, "precision": {"target": "float16"}}
    assert make_settings(fixed, tokens=4, catch_up=2, prefill_chunk=16, max_length=32, **options).profile == {}


def test_settings_survive_the_manifest():
    import json

    written = settings(tokens=4, prefill_chunk=128)
    assert Settings.from_json(json.loads(json.dumps(written.to_json()))) == written
    assert written.to_json() | {"profile": 0} == {
        "backend": "tensorrt_rtx",
        "compute_capability": "8.9",
        "precision": {"target": "float16", "drafter": "float32"},
        "profile": 0,
        "strongly_typed": True,
        "tf32": False,
        "decomposable_attention": True,
        "profiling_verbosity": "DETAILED",
    }


def test_settings_of_another_version_are_refused():
    data = settings(tokens=4, prefill_chunk=128).to_json()
    data["opt_level"] = data.pop("tf32")
    with pytest.raises(EngineError, match="the builder's settings have other fields than expected: opt_level, tf32"):
        Settings.from_json(data)


def test_limits_come_from_the_environment(monkeypatch):
    for name in ("SECONDS", "MEMORY_GB"):
        monkeypatch.delenv(f"SPECCOMPILE_BUILDER_{name}", raising=False)
    assert Limits() == Limits(seconds=3600, memory=pytest.approx(physical_memory() * 0.9))
    monkeypatch.setenv("SPECCOMPILE_BUILDER_SECONDS", "90.5")
    monkeypatch.setenv("SPECCOMPILE_BUILDER_MEMORY_GB", "4")
    assert Limits() == Limits(seconds=90.5, memory=4e9)


@pytest.mark.parametrize("value", ["0", "-1", "much", "nan"])
def test_a_limit_that_is_no_limit(monkeypatch, value):
    monkeypatch.setenv("SPECCOMPILE_BUILDER_SECONDS", value)
    message = rf"\$SPECCOMPILE_BUILDER_SECONDS: received '{value}', expected a number above 0"
    with pytest.raises(UsageError, match=message) as raised:
        Limits()
    assert raised.value.hint == "set SPECCOMPILE_BUILDER_SECONDS to a number, or unset it"


def test_memory_of_a_process():
    """Measure a process that does nothing else: memory that other tests release in this one would count too."""
    size = 50_000_000
    script = f"import sys; print(flush=True); sys.stdin.readline(); held = b'x' * {size}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = read_memory(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert read_memory(process.pid).own - found.own > 0.9 * size
        assert found.peak >= found.own > 0
        process.kill()
    assert read_memory().own > 0
    assert read_memory(2**22 + 1) == Memory(0, 0), "there is no process of that number"


@pytest.mark.parametrize(
    ("backend", "package"), [("tensorrt_rtx", "'speccompile[tensorrt-rtx]'"), ("tensorrt", "tensorrt")]
)
def test_a_module_that_is_missing(monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, backend, None)
    flavour.load.cache_clear()
    with pytest.raises(
        EngineError, match=f"backend '{backend}' needs the Python module {backend}, which cannot"
    ) as found:
        flavour.check_buildable(backend)
    assert found.value.hint == f"pip install {package}"


def test_tensorrt_needs_a_gpu_and_tensorrt_rtx_none(monkeypatch):
    monkeypatch.setattr(flavour, "load", lambda backend: None)
    monkeypatch.setattr(flavour, "find_gpu", lambda: None)
    flavour.check_buildable("tensorrt_rtx")
    with pytest.raises(EngineError, match="builds for the GPU that it finds, and this machine has none") as raised:
        flavour.check_buildable("tensorrt")
    assert raised.value.hint == "run `speccompile finish BUNDLE` on the device"
    monkeypatch.setattr(flavour, "find_gpu", lambda: Gpu("Orin", "8.7"))
    flavour.check_buildable("tensorrt")


@pytest.mark.parametrize(
    ("gpu", "capability", "reason"),
    [
        (None, "8.9", ""),
        (Gpu("RTX 4090", "8.9"), "8.9", ""),
        (Gpu("RTX 4090", "8.9"), None, ""),
        (Gpu("RTX 4090", "8.9"), "8.6", "it is for compute capability 8.6, and RTX 4090 has 8.9"),
    ],
)
def test_which_gpu_an_engine_waits_for(gpu, capability, reason):
    assert flavour.reason_to_defer(gpu, capability) == reason


class Driver:
    """libcuda with one GPU; `failing` is the call that fails."""

    def __init__(self, failing: str = "") -> None:
        self._failing = failing

    def __getattr__(self, name: str):
        def call(*arguments):
            if name == "cuDeviceGetName":
                arguments[0].value = b"NVIDIA GeForce RTX 4060"
            if name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = {75: 8, 76: 9}[arguments[1]]
            return 100 if name == self._failing else 0

        return call


@pytest.mark.parametrize("failing", ["", "cuInit", "cuDeviceGet"])
def test_the_gpu_is_asked_from_the_driver(monkeypatch, failing):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(failing))
    assert flavour.find_gpu() == (None if failing else Gpu("NVIDIA GeForce RTX 4060", "8.9"))


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(flavour, "DRIVER", "libno-such-driver.so.1")
    assert flavour.find_gpu() is None


LINES = ["parsing verify.onnx", "[VERBOSE] Parsing node: a [Add]", "[VERBOSE] Parsing node: b [Mul]", "[ERROR] ouch"]


@pytest.mark.parametrize(
    ("ending", "what", "hint"),
    [
        (BuilderExit(-11, None, LINES), "the builder crashed with SIGSEGV; it was parsing node b [Mul]", "fault of"),
        (BuilderExit(-9, None, LINES[:1]), "the builder was killed; it had not begun", "ran out of memory"),
        (BuilderExit(-9, "memory", []), "the builder took more than 2 GB of memory", "SPECCOMPILE_BUILDER_MEMORY_GB"),
        (BuilderExit(-9, "seconds", []), "the builder was not done after 9 seconds", "SPECCOMPILE_BUILDER_SECONDS"),
        (
            BuilderExit(1, None, LINES),
            "the builder's process ended with exit code 1; it was parsing node b",
            "report it",
        ),
        (BuilderExit(0, None, [], refusal="it would not", hint="ask again"), "it would not", "ask again"),
        (
            BuilderExit(0, None, [], errno=errno.ENOSPC, reason="No space left on device"),
            "the engine could not be written: No space left on device",
            "free some disk space",
        ),
        (
            BuilderExit(0, None, [], errno=errno.EACCES, reason="Permission denied"),
            "the engine could not be built: Permission denied",
            "check the permissions",
        ),
    ],
)
def test_how_a_build_ended(ending, what, hint):
    error = to_engine_error(ending, "step", settings(tokens=4, prefill_chunk=16), Limits(seconds=9, memory=2e9))
    message, *shown = str(error).split("\n  ")
    assert message.startswith(
        f"graph 'step' (tensorrt_rtx, compute capability 8.9, target float16, drafter float32): {what}"
    )
    assert hint in str(error.hint)
    expected = [line for line in ending.lines if "Parsing" not in line]
    assert shown == (["the builder's last messages:", *expected] if expected else [])


@pytest.mark.parametrize(
    "ending", [BuilderExit(-6, None, []), BuilderExit(0, None, [], refusal="it would not", hint="ask again")]
)
def test_where_addresses_are_limited_that_is_said(monkeypatch, ending):
    limit = MemoryLimit("`ulimit -v`", "address space", 2_300_000_000, "raise it")
    monkeypatch.setattr(failures, "memory_limits", lambda: [limit])
    error = to_engine_error(ending, "step", settings(tokens=4, prefill_chunk=16), Limits(9, 2e9))
    assert error.hint.startswith(
        "`ulimit -v` leaves the builder 2.3 GB of addresses, which may be too little (raise it)"
    )


def test_only_the_last_messages_are_shown():
    lines = [f"[INFO] {number}" for number in range(50)]
    error = to_engine_error(
        BuilderExit(-6, None, [*lines, "word " * 500]), "step", settings(tokens=4, prefill_chunk=16), Limits(9, 2e9)
    )
    *shown, long = str(error).splitlines()[2:]
    assert shown == [f"  [INFO] {number}" for number in range(45, 50)]
    assert len(long) == 402


def test_what_the_builder_did_last():
    assert last_phase(LINES) == "it was parsing node b [Mul]"
    assert last_phase([*LINES, "building the engine", "[INFO] slowly"]) == "it was building the engine"
    assert last_phase(LINES[:1]) == "it had not begun"


LAYERS = """Layers:
Name: a+b_myl1_2, LayerType: gemm, Inputs: [ { Name: x } ], StreamId: 0, Metadata: [ONNX Layer: a][ONNX Layer: b/c]
Name: __myl_Move_1, LayerType: kgen, Inputs: [], Metadata:

I/O Tensors:
 Name: window, IOMode: Input, DataType: Int64
"""


def test_the_layers_of_an_engine_are_read_from_the_log():
    assert fused_layers(LAYERS) == {
        "available": True,
        "types": {"gemm": 1, "kgen": 1},
        "layers": [
            {"name": "a+b_myl1_2", "type": "gemm", "nodes": ["a", "b/c"]},
            {"name": "__myl_Move_1", "type": "kgen", "nodes": []},
        ],
    }
    assert fused_layers("") == {"available": False, "types": {}, "layers": []}
