"""`speccompile doctor`: the real machine in a fresh process, and machines that lack something."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner

from speccompile.cli import doctor, machine
from speccompile.cli.features import Availability
from speccompile.compiler.engines.flavour import Gpu
from speccompile.errors import SpeccompileError

IN_A_PROCESS = "import sys; from speccompile.cli.doctor import command; command(sys.argv[1:], prog_name='doctor')"


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a driver there that finds no GPU, whatever this machine has."""
    monkeypatch.setattr(machine, "find_gpu", lambda: None)


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Return distribution -> the version that importlib.metadata reports, None for a missing one; others are real."""
    pretended: dict[str, str | None] = {}
    real = importlib.metadata.version

    def version(name: str) -> str:
        found = pretended[name] if name in pretended else real(name)
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", dict)
    return pretended


def program(folder: Path, script: str) -> str:
    """Return a folder for PATH in which nvidia-smi is this shell script."""
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(folder)


def test_json_in_a_fresh_process_describes_this_machine() -> None:
    run = subprocess.run([sys.executable, "-c", IN_A_PROCESS, "--json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    packages = {package["name"]: package for package in found["packages"]}
    assert packages["numpy"]["version"] == numpy.__version__
    assert packages["torch"]["purpose"] == "compile"
    assert packages["tensorrt-rtx-cu13"]["purpose"] == "gpu"
    assert len(packages) == len(found["packages"])
    assert found["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["machine"]["memory_gib"] > 0
    assert "CPUExecutionProvider" in found["machine"]["onnxruntime_providers"]
    assert found["can_run"] == {"possible": True, "reason": "everything needed is installed"}


def test_looking_imports_none_of_the_heavy_packages() -> None:
    code = f"{IN_A_PROCESS[:-1]}, standalone_mode=False); assert not {{'torch', 'transformers'}} & set(sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_missing_compiler_package_is_named_with_its_install_command(versions: dict[str, str | None]) -> None:
    versions["torch"] = None
    text = CliRunner().invoke(doctor.command).stdout
    assert "can run bundles: yes, everything needed is installed" in text
    assert "can compile: no, torch is missing" in text
    (line,) = [line for line in text.splitlines() if line.strip().startswith("torch ")]
    assert line.split()[1] == "missing"
    assert "pip install 'torch" in line


def test_too_old_package_is_not_enough(versions: dict[str, str | None]) -> None:
    versions["onnx"] = "1.2.0"
    diagnosis = doctor.diagnose()
    assert diagnosis.can["run"].possible
    assert diagnosis.can["compile"].reason.startswith("onnx is 1.2.0, needed is >=")


def test_missing_runtime_package_stops_running_and_compiling(versions: dict[str, str | None]) -> None:
    versions |= {"tokenizers": None, "blake3": None}
    diagnosis = doctor.diagnose()
    assert diagnosis.can["run"] == Availability(False, "blake3 is missing; tokenizers is missing")
    assert diagnosis.can["compile"] == diagnosis.can["run"]


def test_module_of_a_differently_named_distribution_is_found(
    versions: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions |= {"onnxruntime": None, "onnxruntime-gpu": "1.99.0"}
    versions |= {"tensorrt-rtx-cu13": None, "tensorrt-rtx-cu99": "1.99.0"}
    modules = {"onnxruntime": ["onnxruntime-gpu"], "tensorrt_rtx": ["tensorrt-rtx-cu99"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: modules)
    packages = {package.name: package for package in machine.inspect_packages()}
    for name in ("onnxruntime", "tensorrt-rtx-cu13"):
        assert (packages[name].version, packages[name].install) == ("1.99.0", None)


def test_onnxruntime_that_cannot_be_imported_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    conclusion = doctor.diagnose().can["run"]
    assert not conclusion.possible
    assert conclusion.reason.startswith("onnxruntime is installed and cannot be imported: ")


def test_unknown_requirements_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    with pytest.raises(
        SpeccompileError, match="expected the metadata of an installed speccompile, found none"
    ) as raised:
        doctor.diagnose()
    assert raised.value.hint is not None
    assert "pip install -e" in raised.value.hint


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'Some GPU, 9.0, 100 MiB, 1.2'", "gpu          Some GPU, 9.0, 100 MiB, 1.2"),
        ("echo 'no driver'; exit 9", "gpu          none (nvidia-smi failed: no driver)"),
        ("exit 0", "gpu          none (nvidia-smi lists none)"),
    ],
)
def test_gpus_as_nvidia_smi_lists_them(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", program(tmp_path, script), prepend=":")
    assert expected in CliRunner().invoke(doctor.command).stdout.splitlines()


def test_no_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.inspect_machine().gpu_problem == "nvidia-smi is not installed"


def test_gpu_that_only_the_driver_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "find_gpu", lambda: Gpu("Some device", "8.7"))
    found = machine.inspect_machine()
    assert (found.gpus, found.gpu_problem) == (["Some device, 8.7"], None)


def test_program_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = program(tmp_path, "")
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF, and then nothing of a program")
    monkeypatch.setenv("PATH", folder)
    problem = machine.inspect_machine().gpu_problem
    assert problem is not None
    assert problem.startswith("nvidia-smi does not answer: ")


@pytest.mark.parametrize(
    ("available", "expected"),
    [(4, "4 physical cores, "), (1, "4 physical cores, 1 for this process (by its affinity mask or its quota), ")],
)
def test_cores_that_this_process_may_not_use(available: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "physical_cores", lambda: 4)
    monkeypatch.setattr(machine, "available_cores", lambda: available)
    run = CliRunner().invoke(doctor.command)
    assert f"processor    {expected}" in run.stdout
    assert json.loads(CliRunner().invoke(doctor.command, ["--json"]).stdout)["machine"]["available_cores"] == available
