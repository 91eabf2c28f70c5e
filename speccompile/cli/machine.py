"""Inspect this machine: the packages that speccompile needs, the processor, and accelerators.

Packages are looked up by their metadata and not imported, so that a broken one cannot break the inspection. The
requirements and their versions come from speccompile's own metadata.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass

from packaging.requirements import Requirement

from speccompile import native
from speccompile.compiler.engines.flavour import find_gpu
from speccompile.errors import SpeccompileError
from speccompile.machine.system import available_cores, physical_cores

RUN, COMPILE, GPU = "run", "compile", "gpu"
# Module -> requirement, for building and running engines on GPUs only.
GPU_PACKAGES = {
    "tensorrt_rtx": "tensorrt-rtx-cu13>=1.7",
    "tensorrt": "tensorrt>=10.15",
    "cuda": "cuda-bindings>=12.8",
    "onnxruntime_ep_nv_tensorrt_rtx": "onnxruntime-ep-nv-tensorrt-rtx",
}
GPU_QUERY = ("--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class Package:
    """One package. `version` is None if it is missing, `install` is None if nothing needs to be installed."""

    name: str
    purpose: str
    version: str | None
    required: str
    install: str | None

    @property
    def lack(self) -> str | None:
        """Return the problem of the package, or None."""
        if self.install is None:
            return None
        if self.version is None:
            return f"{self.name} is missing"
        return f"{self.name} is {self.version}, needed is {self.required}"


@dataclass(frozen=True)
class Machine:
    """This machine. available_cores: cores that this process may use, the default number of an engine's threads.

    kernels: code path of the project's kernels in use, or "none"; kernel_paths: all paths that can run here.
    kernels_absence: reason, cost and remedy of missing kernels, or None. native_runtime: path of the command of the C++
    runtime, or None if it was not compiled.
    memory_gib: physical memory in GiB. gpus: rows of nvidia-smi, or the driver's description of one GPU.
    """

    python: str
    platform: str
    physical_cores: int
    available_cores: int
    memory_gib: float
    kernels: str
    kernel_paths: list[str]
    kernels_absence: native.Absence | None
    native_runtime: str | None
    onnxruntime_providers: list[str]
    onnxruntime_problem: str | None
    gpus: list[str]
    gpu_problem: str | None


def inspect_packages() -> list[Package]:
    """Return the packages that speccompile needs to run and to compile, then those for engines on GPUs.

    Raise SpeccompileError if speccompile has no metadata: its requirements are then unknown.
    """
    try:
        lines = importlib.metadata.requires("speccompile") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise SpeccompileError(
            "expected the metadata of an installed speccompile, found none: its requirements are unknown",
            hint="install it first, in its folder: pip install -e '.[compile]'",
        ) from error
    requirements = [Requirement(line) for line in lines]
    packages = [_inspect_package(each, RUN, each.name) for each in requirements if _applies(each, "")]
    compiling = [each for each in requirements if not _applies(each, "") and _applies(each, "compile")]
    packages += [_inspect_package(each, COMPILE, each.name) for each in compiling]
    return packages + [_inspect_package(Requirement(line), GPU, name) for name, line in GPU_PACKAGES.items()]


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _inspect_package(requirement: Requirement, purpose: str, module: str) -> Package:
    version = _installed_version(requirement.name, module)
    satisfied = version is not None and requirement.specifier.contains(version, prereleases=True)
    install = None if satisfied else f"pip install '{requirement.name}{requirement.specifier}'"
    return Package(requirement.name, purpose, version, str(requirement.specifier), install)


def _installed_version(name: str, module: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # A distribution of another name may provide the module, as onnxruntime-gpu provides onnxruntime.
        providing = importlib.metadata.packages_distributions().get(module)
        return importlib.metadata.version(providing[0]) if providing else None


def inspect_machine() -> Machine:
    """Inspect Python, processor, memory, kernels, providers and GPUs."""
    providers, onnxruntime_problem = _onnxruntime_providers()
    gpus, gpu_problem = _gpus()
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        physical_cores=physical_cores(),
        available_cores=available_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernels=native.kernels(),
        kernel_paths=native.paths(),
        kernels_absence=native.absence(),
        native_runtime=str(command) if (command := native.locations().command) else None,
        onnxruntime_providers=providers,
        onnxruntime_problem=onnxruntime_problem,
        gpus=gpus,
        gpu_problem=gpu_problem,
    )


def _onnxruntime_providers() -> tuple[list[str], str | None]:
    try:
        import onnxruntime
    except ImportError as error:
        return [], str(error)
    return onnxruntime.get_available_providers(), None


def _gpus() -> tuple[list[str], str | None]:
    """Return the GPUs, and the reason if there are none."""
    listed, problem = _listed_gpus()
    if not listed and (gpu := find_gpu()):  # a device without nvidia-smi
        return [f"{gpu.name}, {gpu.compute_capability}"], None
    return listed, problem


def _listed_gpus() -> tuple[list[str], str | None]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "nvidia-smi is not installed"
    try:
        found = subprocess.run([program, *GPU_QUERY], capture_output=True, text=True, timeout=20)  # noqa: PLW1510, S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer: {error}"
    if found.returncode != 0:
        return [], f"nvidia-smi failed: {(found.stdout + found.stderr).strip()}"
    gpus = found.stdout.strip().splitlines()
    return gpus, None if gpus else "nvidia-smi lists none"
