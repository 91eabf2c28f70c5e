"""`speccompile doctor`: what this machine can build and run, and what to install for the rest.

Packages are looked up by their metadata and never imported, so that a broken one cannot break the look. What is needed,
and in which version, is read from speccompile's own metadata.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from packaging.requirements import Requirement

from speccompile.errors import SpeccompileError

RUN, COMPILE, TENSORRT = "run", "compile", "tensorrt"
# TensorRT engines are made with one of the first two; nothing else needs these.
TENSORRT_PACKAGES = ("tensorrt_rtx", "tensorrt", "polygraphy")
HEADINGS = {RUN: "to run bundles:", COMPILE: "to compile:", TENSORRT: "for TensorRT engines (optional):"}
GPU_QUERY = ("--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class Package:
    """One package. `version` is None when it is missing, `install` when nothing need be done."""

    name: str
    purpose: str
    version: str | None
    required: str
    install: str | None


@dataclass(frozen=True)
class Conclusion:
    """Whether this machine can do something, and why (not)."""

    possible: bool
    reason: str


@dataclass(frozen=True)
class Machine:
    """`memory_gib` is the physical memory in GiB; `gpus` are rows of nvidia-smi."""

    python: str
    platform: str
    physical_cores: int
    memory_gib: float
    onnxruntime_providers: list[str]
    onnxruntime_problem: str | None
    gpus: list[str]
    gpu_problem: str | None


@dataclass(frozen=True)
class Diagnosis:
    """Everything that doctor prints; `--json` prints its fields."""

    machine: Machine
    packages: list[Package]
    can_run: Conclusion
    can_compile: Conclusion


def diagnose() -> Diagnosis:
    """Look at this machine. Raises SpeccompileError when speccompile itself is not installed."""
    packages, machine = inspect_packages(), inspect_machine()
    can_run = _conclude(packages, (RUN,))
    if can_run.possible and not machine.onnxruntime_providers:
        can_run = Conclusion(False, f"onnxruntime is installed and cannot be imported: {machine.onnxruntime_problem}")
    can_compile = _conclude(packages, (RUN, COMPILE)) if can_run.possible else can_run
    return Diagnosis(machine, packages, can_run, can_compile)


def inspect_packages() -> list[Package]:
    """What speccompile needs to run and to compile, then what TensorRT engines need.

    Raises SpeccompileError when speccompile has no metadata, because nobody then knows what it needs.
    """
    try:
        lines = importlib.metadata.requires("speccompile") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise SpeccompileError(
            "expected the metadata of an installed speccompile, found none: its requirements are unknown",
            hint="install it first, in its folder: pip install -e '.[compile]'",
        ) from error
    requirements = [Requirement(line) for line in lines]
    needed = [(requirement, RUN) for requirement in requirements if _applies(requirement, "")]
    needed += [(each, COMPILE) for each in requirements if not _applies(each, "") and _applies(each, "compile")]
    needed += [(Requirement(name), TENSORRT) for name in TENSORRT_PACKAGES]
    return [_inspect_package(requirement, purpose) for requirement, purpose in needed]


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _inspect_package(requirement: Requirement, purpose: str) -> Package:
    version = _installed_version(requirement.name)
    satisfied = version is not None and requirement.specifier.contains(version, prereleases=True)
    install = None if satisfied else f"pip install '{requirement.name}{requirement.specifier}'"
    return Package(requirement.name, purpose, version, str(requirement.specifier), install)


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # The module may come from a distribution of another name, as onnxruntime does from onnxruntime-gpu.
        providing = importlib.metadata.packages_distributions().get(name)
        return importlib.metadata.version(providing[0]) if providing else None


def _conclude(packages: Iterable[Package], purposes: tuple[str, ...]) -> Conclusion:
    lacking = [package for package in packages if package.purpose in purposes and package.install]
    if lacking:
        return Conclusion(False, "; ".join(map(_what_lacks, lacking)))
    return Conclusion(True, "everything needed is installed")


def _what_lacks(package: Package) -> str:
    if package.version is None:
        return f"{package.name} is missing"
    return f"{package.name} is {package.version}, needed is {package.required}"


def inspect_machine() -> Machine:
    """Python, processor, memory, and what computes beside it."""
    providers, onnxruntime_problem = _onnxruntime_providers()
    gpus, gpu_problem = _gpus()
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        physical_cores=_physical_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        onnxruntime_providers=providers,
        onnxruntime_problem=onnxruntime_problem,
        gpus=gpus,
        gpu_problem=gpu_problem,
    )


def _physical_cores(topology: Path = Path("/sys/devices/system/cpu")) -> int:
    """Cores, each counted once whatever its hyper-threads; logical processors where the kernel does not say."""
    siblings = {file.read_text() for file in topology.glob("cpu[0-9]*/topology/thread_siblings_list")}
    return len(siblings) or os.cpu_count() or 1


def _onnxruntime_providers() -> tuple[list[str], str | None]:
    try:
        import onnxruntime
    except ImportError as error:
        return [], str(error)
    return onnxruntime.get_available_providers(), None


def _gpus() -> tuple[list[str], str | None]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "nvidia-smi is not installed"
    try:
        found = subprocess.run([program, *GPU_QUERY], capture_output=True, text=True, timeout=20)  # noqa: PLW1510, S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer: {error}"
    if found.returncode != 0:
        return [], f"nvidia-smi failed: {(found.stdout + found.stderr).strip()}"
    return found.stdout.strip().splitlines(), None


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as text, one finding a line."""
    machine = diagnosis.machine
    gpus = machine.gpus or [f"none ({machine.gpu_problem or 'nvidia-smi lists none'})"]
    lines = [
        f"python       {machine.python}",
        f"platform     {machine.platform}",
        f"processor    {machine.physical_cores} physical cores, {machine.memory_gib} GiB memory",
        f"onnxruntime  {', '.join(machine.onnxruntime_providers) or machine.onnxruntime_problem}",
        *(f"gpu          {gpu}" for gpu in gpus),
    ]
    for purpose, heading in HEADINGS.items():
        lines += ["", heading]
        lines += [_render_package(package) for package in diagnosis.packages if package.purpose == purpose]
    lines += ["", _render_conclusion("can run bundles", diagnosis.can_run)]
    lines += [_render_conclusion("can compile", diagnosis.can_compile)]
    return "\n".join(lines)


def _render_package(package: Package) -> str:
    advice = f"  needs {package.required or 'any version'}: {package.install}" if package.install else ""
    return f"  {package.name:<18} {package.version or 'missing':<14}{advice}".rstrip()


def _render_conclusion(what: str, conclusion: Conclusion) -> str:
    return f"{what}: {'yes' if conclusion.possible else 'no'}, {conclusion.reason}"


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """What this machine can build and run, and what to install for the rest.

    \b
    Examples:
      speccompile doctor
      speccompile doctor --json
    """
    diagnosis = diagnose()
    click.echo(json.dumps(asdict(diagnosis), indent=2) if as_json else render(diagnosis))
