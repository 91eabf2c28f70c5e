"""What doctor concludes from what is installed, and `--require`, which tries it."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

from speccompile import native
from speccompile.cli import doctor, features, smoke_tests
from speccompile.cli.features import FEATURES, Availability, conclude
from speccompile.cli.machine import COMPILE, GPU, RUN, Machine, Package
from speccompile.compiler.engines.flavour import find_gpu
from speccompile.errors import EngineError, SpeccompileError
from speccompile.native import Absence

EVERYTHING = "everything needed is installed"
NO_GPU = "no GPU: nvidia-smi is not installed"


def package(name: str, purpose: str, *, installed: bool = True) -> Package:
    return Package(name, purpose, "1.0" if installed else None, "", None if installed else f"pip install '{name}'")


def packages(*missing: str) -> list[Package]:
    """Return one package for each purpose and all that an ability names, without those missing."""
    named = {name for ability in FEATURES.values() for name in ability.packages}
    purposes = {"onnxruntime": RUN, "torch": COMPILE} | dict.fromkeys(sorted(named), GPU)
    return [package(name, purpose, installed=name not in missing) for name, purpose in purposes.items()]


def a_machine(
    *providers: str,
    gpu: bool = True,
    absence: Absence | None = None,
    command: str | None = "speccompile-native",
) -> Machine:
    gpus, gpu_problem = (["Some GPU, 8.9"], None) if gpu else ([], "nvidia-smi is not installed")
    kernels = (native.NONE, [], absence) if absence else ("fast", ["fast", "scalar"], None)
    return Machine("3.11.0", "Linux", 2, 2, 8.0, *kernels, command, list(providers), None, gpus, gpu_problem)


def reasons(found: dict[str, Availability]) -> dict[str, str]:
    """Return the reasons of what is impossible."""
    return {name: conclusion.reason for name, conclusion in found.items() if not conclusion.possible}


def test_machine_with_everything_can_do_everything() -> None:
    found = conclude(packages(), a_machine("CUDAExecutionProvider"))
    assert found == dict.fromkeys(FEATURES, Availability(True, EVERYTHING))


def test_machine_without_a_gpu_builds_for_one() -> None:
    found = conclude(packages("tensorrt"), a_machine("CPUExecutionProvider", gpu=False))
    no_cuda = "onnxruntime has no CUDAExecutionProvider: onnxruntime-gpu has, installed in its place"
    assert reasons(found) == {
        "build_tensorrt": f"tensorrt is missing; {NO_GPU}",
        "run_cuda": f"{no_cuda}; {NO_GPU}",
        "run_nv_tensorrt_rtx": NO_GPU,
        "run_tensorrt_rtx": NO_GPU,
        "run_tensorrt": f"tensorrt is missing; {NO_GPU}",
    }


@pytest.mark.parametrize(
    ("missing", "impossible"),
    [
        ("onnxruntime", set(FEATURES) - {"build_tensorrt_rtx", "build_tensorrt"}),
        ("torch", {"compile"}),
        ("tensorrt-rtx-cu13", {"build_tensorrt_rtx", "run_tensorrt_rtx"}),
        ("tensorrt", {"build_tensorrt", "run_tensorrt"}),
        ("onnxruntime-ep-nv-tensorrt-rtx", {"run_nv_tensorrt_rtx"}),
        ("cuda-bindings", {"run_cuda", "run_nv_tensorrt_rtx", "run_tensorrt_rtx", "run_tensorrt"}),
    ],
)
def test_missing_package_stops_what_needs_it_and_nothing_else(missing: str, impossible: set[str]) -> None:
    found = reasons(conclude(packages(missing), a_machine("CUDAExecutionProvider")))
    assert found == dict.fromkeys(impossible, f"{missing} is missing")


def test_machine_without_the_kernels_runs_without_them() -> None:
    machine = a_machine("CUDAExecutionProvider", absence=Absence("they were not compiled", "compile them"))
    assert reasons(conclude(packages(), machine)) == {"run_kernels": "they were not compiled"}


def test_machine_without_the_runtime_in_cpp_runs_python_s() -> None:
    machine = a_machine("CUDAExecutionProvider", command=None)
    assert reasons(conclude(packages(), machine)) == {"run_native": "it was not compiled"}


def test_every_ability_can_be_tried() -> None:
    assert set(smoke_tests.TRIALS) == set(FEATURES)


def refused(*names: str, match: str = "expected a machine that can") -> SpeccompileError:
    arguments = [word for name in names for word in ("--require", name)]
    with pytest.raises(SpeccompileError, match=match) as raised:
        doctor.command.main(arguments, standalone_mode=False)
    assert raised.value.exit_code == 1
    return raised.value


def test_what_is_there_is_tried() -> None:
    run = CliRunner().invoke(doctor.command, ["--require", "run"])
    assert run.exit_code == 0, run.output
    assert "can run bundles: yes, tried" in run.stdout
    assert f"can compile: yes, {EVERYTHING}" in run.stdout


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let doctor see a machine with a GPU that has everything but some packages."""

    def see(*missing: str, machine: Machine | None = None) -> None:
        monkeypatch.setattr(doctor, "inspect_packages", lambda: packages(*missing))
        monkeypatch.setattr(doctor, "inspect_machine", lambda: machine or a_machine("CUDAExecutionProvider"))

    return see


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Let a trial be this shell script."""

    def be(script: str) -> str:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return str(program)

    return be


def test_refusal_says_what_is_missing_and_how_to_get_it(pretend: Callable[..., None]) -> None:
    pretend("torch", "tensorrt", machine=a_machine("CPUExecutionProvider", gpu=False))
    error = refused("compile", "build_tensorrt")
    assert str(error) == (
        "expected a machine that can compile and build TensorRT engines, found one that cannot compile: torch is "
        f"missing; one that cannot build TensorRT engines: tensorrt is missing; {NO_GPU}"
    )
    assert error.hint == (
        "pip install 'torch'; pip install 'tensorrt'; a container needs its GPUs given: docker run --gpus all"
    )


def test_refusal_says_how_to_get_the_kernels(pretend: Callable[..., None]) -> None:
    pretend(machine=a_machine("CUDAExecutionProvider", absence=Absence("they were not compiled", "compile them")))
    error = refused("run_kernels")
    assert str(error).endswith("one that cannot run the kernels for this processor: they were not compiled")
    assert error.hint == "compile them"


@pytest.mark.skipif(native.library() is None, reason="the kernels were not compiled here")
def test_kernels_can_be_tried() -> None:
    assert features._try("run_kernels") == Availability(True, "tried")


def test_kernels_that_give_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(run=lambda names, feeds: [np.zeros((1, 2), np.float32)])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *arguments, **options: session)
    with pytest.raises(SystemExit, match="expected the kernels to normalize 1 and 7 to 1 and 14, got "):
        smoke_tests.TRIALS["run_kernels"]()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo one >&2; echo 'libfoo.so: cannot open' >&2; exit 1", r"failed \(1\): libfoo.so: cannot open"),
        ("kill -SEGV $$", r"failed \(-11\): without a word"),
        ("exec sleep 20", r"not done after 0.2 s"),
    ],
)
def test_trial_that_fails_is_a_refusal(
    script: str,
    reason: str,
    pretend: Callable[..., None],
    python: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend()
    program = python(script)
    monkeypatch.setattr(features, "TRIAL_SECONDS", 0.2 if "sleep" in script else 10)
    error = refused("run", match=f"cannot run bundles: {EVERYTHING}; tried, and {reason}$")
    assert error.hint == f"see all that is said: {program} -m speccompile.cli.smoke_tests run"


def test_trial_is_of_what_is_required(
    pretend: Callable[..., None], python: Callable[[str], str], tmp_path: Path
) -> None:
    pretend()
    python(f'echo "$@" >>{tmp_path}/called')
    doctor.command.main(["--require", "run_cuda", "--require", "run_tensorrt"], standalone_mode=False)
    called = (tmp_path / "called").read_text().splitlines()
    assert called == ["-m speccompile.cli.smoke_tests run_cuda", "-m speccompile.cli.smoke_tests run_tensorrt"]


def test_builder_of_tensorrt_rtx_can_be_tried_without_a_gpu() -> None:
    pytest.importorskip("tensorrt_rtx")
    assert features._try("build_tensorrt_rtx") == Availability(True, "tried")


def test_compiler_package_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(smoke_tests.EXTRAS, "compile", ("json", "a_module_that_nobody_has"))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        smoke_tests.TRIALS["compile"]()


@pytest.mark.skipif(find_gpu() is not None, reason="this machine has a GPU")
@pytest.mark.parametrize("name", [name for name, each in FEATURES.items() if name.startswith("run_") and each.gpu])
def test_running_on_a_gpu_fails_without_one(name: str) -> None:
    pytest.importorskip("cuda.bindings")
    with pytest.raises(EngineError, match="find a GPU"):
        smoke_tests.TRIALS[name]()


class Session:
    """Stands in for a session of ONNX Runtime whose graph doubles [[1, 2], [3, 4], [5, 6]]."""

    product: ClassVar = [[2, 4], [6, 8], [10, 12]]
    providers: ClassVar = ["CPUExecutionProvider"]
    opened: ClassVar[list[Any]] = []

    def __init__(self, path: str, options: Any, providers: list[str] | None) -> None:
        self.opened[:] = [options, providers]

    def get_providers(self) -> list[str]:
        return self.providers

    def run(self, names: None, feeds: dict[str, Any]) -> list[Any]:
        assert feeds["X"].tolist() == [[2, 2]] * 3
        return [np.array(self.product, np.float32)]


@pytest.mark.parametrize(
    ("providers", "product"),
    [(["OtherProvider"], Session.product), (Session.providers, [[0, 0], [0, 0], [0, 0]])],
)
def test_graph_that_runs_elsewhere_or_wrong(
    providers: list[str], product: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(Session, "providers", providers)
    monkeypatch.setattr(Session, "product", product)
    with pytest.raises(SystemExit, match="expected CPUExecutionProvider to give 2 .* from " + providers[0]):
        smoke_tests.TRIALS["run"]()


def test_provider_that_comes_as_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin: Any = ModuleType("onnxruntime_ep_nv_tensorrt_rtx")
    plugin.get_ep_name, plugin.get_library_path = lambda: "its name", lambda: "its library"
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    name = "NvTensorRTRTXExecutionProvider"
    registered, devices = [], [SimpleNamespace(ep_name="another"), SimpleNamespace(ep_name=name)]
    options = SimpleNamespace(add_provider_for_devices=lambda *given: registered.append(given))
    monkeypatch.setattr(onnxruntime, "SessionOptions", lambda: options)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", lambda *given: registered.append(given))
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: devices)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(Session, "providers", [name])
    monkeypatch.setattr(smoke_tests, "open_device", lambda: None)
    smoke_tests.TRIALS["run_nv_tensorrt_rtx"]()
    assert registered == [("its name", "its library"), ([devices[1]], {})]
    assert Session.opened == [options, None]
